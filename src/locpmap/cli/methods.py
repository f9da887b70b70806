"""``locpmap methods``: the decoders and their options."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A decoder, to see its options.")] = None,
) -> None:
    """List the decoders, or describe one with its options and their defaults."""
    from locpmap.inference import DECODERS
    from locpmap.inference.api import known_method
    from locpmap.inference.registry import options_of

    if name is None:
        for method, decoder in DECODERS.items():
            typer.echo(f"{method:<24} {_description(decoder).splitlines()[0]}")
        return
    text = _description(DECODERS[known_method(name)]).replace("Args:", "Options:")
    defaults = " ".join(f"{option}={default}" for option, default in options_of(name).items())
    typer.echo(f"{text}\n\nDefaults: {defaults}")


def _description(decoder: type) -> str:
    """The class's docstring as plain text, without its example."""
    return (inspect.getdoc(decoder) or "").partition("\n\n>>> ")[0].replace("``", "")
