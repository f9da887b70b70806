"""``locpmap methods``: list the decoders and their options."""

import inspect
import re
from typing import Annotated

import typer


def methods(name: Annotated[str | None, typer.Argument(metavar="NAME", help="Decoder to describe.")] = None) -> None:
    """List the decoders, or describe one decoder and its options."""
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
    """Return the docstring of a decoder as plain text, up to its example."""
    text = re.split(r"\n\n(?:Examples?:\n|>>> )", inspect.getdoc(decoder) or "")[0].replace("``", "")
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", text)
