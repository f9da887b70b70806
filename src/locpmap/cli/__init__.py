"""The command ``locpmap``.  Commands import the library when they run, so that help is instant."""

from __future__ import annotations

import sys

import typer

from locpmap.cli.doctor import doctor
from locpmap.cli.infer import infer
from locpmap.errors import LocpmapError

app = typer.Typer(
    name="locpmap",
    help="Structured prediction with an honest uncertainty: decode pairwise models by Local Perturb-and-MAP and others.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(infer)
app.command()(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from locpmap import __version__

        typer.echo(f"locpmap {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version and exit."),
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run; bad input is one sentence on standard error and status 2, Ctrl-C is status 130."""
    try:
        app()
    except LocpmapError as error:
        typer.echo(f"locpmap: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("locpmap: interrupted", err=True)
        sys.exit(130)
