"""The command ``locpmap``, with one module per subcommand.

Each command imports its dependencies when it runs, so that ``--help`` stays fast.
"""

import atexit
import gc
import importlib
import io
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from locpmap.cli.commands import Commands
from locpmap.errors import LocpmapError

__all__ = ["app", "main"]

BAD_INPUT = 2
INTERRUPTED = 130

# The base class of all usage errors: some versions of typer bundle click, others import it.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="locpmap",
    cls=Commands,
    help="Structured prediction with calibrated uncertainty: refine segmentations, fit and decode pairwise models.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        # Imported here, because modules of the package must not import the package itself.
        typer.echo(f"locpmap {importlib.import_module('locpmap').__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command; exit with 0 after success, 2 after bad input (one sentence on stderr) or 130 after Ctrl-C."""
    if arguments is None:  # a process of its own
        gc.set_threshold(50_000)  # search for cyclic garbage less often
        atexit.register(gc.freeze)  # and not at exit: the objects of imported modules are not garbage
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # print ? where the encoding has no ± or ×
        sys.stdout.reconfigure(errors="replace")
    warnings.showwarning = _warn
    try:
        status = app(words or ["--help"], prog_name="locpmap", standalone_mode=False)
    except (LocpmapError, UsageProblem) as error:
        sentence = error.format_message() if isinstance(error, UsageProblem) else str(error)  # type: ignore[attr-defined]
        _fail(sentence, BAD_INPUT)
    except OSError as error:
        _fail(f"{error.filename or 'a file'} cannot be read or written: {error.strerror or error}", BAD_INPUT)
    except MemoryError:
        _fail("the model does not fit into memory", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    if status == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    sys.exit(status or 0)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as a sentence, without the line of code that raised it."""
    typer.echo(f"locpmap: {message}", err=True)


def _fail(sentence: str, status: int) -> NoReturn:
    typer.echo(f"locpmap: {sentence}", err=True)
    sys.exit(status)
