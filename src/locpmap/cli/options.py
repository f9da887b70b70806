"""Options that several commands have: how to parse decoder options, and the workers of ``--scheduler``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.errors import InputError, one_of

if TYPE_CHECKING:
    from locpmap.scale.workers import Workers

MethodOption = Annotated[str, typer.Option("--method", "-m", metavar="NAME", help="Decoder; see below.")]
DecoderOptions = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option of the decoder.  May be repeated.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of the random generator.")]
DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Device.")]
SchedulerOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers share this file system.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

WORDS = {"true": True, "yes": True, "false": False, "no": False}


def parse_options(method: str, texts: Iterable[str], own: Mapping[str, str]) -> dict[str, Any]:
    """Parse decoder options ``key=value``; ``own`` maps other arguments to options of the command."""
    from locpmap.inference.api import known_method
    from locpmap.inference.registry import options_of

    defaults = options_of(known_method(method))
    return dict(_parse(text, defaults, own) for text in texts)


def parse_choices(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Parse names separated by commas; return them in the order of the known ones."""
    words = [one_of(f"value of {option}", word.strip(), known) for word in text.split(",")]
    return tuple(name for name in known if name in words)


def _parse(text: str, defaults: Mapping[str, Any], own: Mapping[str, str]) -> tuple[str, Any]:
    """Return the key and the parsed value: a Python literal, a boolean from yes or no, 1e3 as integer, or the text."""
    key, equals, word = text.partition("=")
    if not equals or not key.isidentifier():
        raise InputError(f"--option is {text!r}, expected KEY=VALUE")
    if key not in defaults and key in own:
        raise InputError(f"{key} is not an option of the decoder: use {own[key]} in place of --option")
    value: Any = word
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(word)
    if isinstance(defaults.get(key), bool):
        return key, WORDS.get(word.lower(), value)
    if isinstance(defaults.get(key), int) and isinstance(value, float) and value.is_integer():
        return key, int(value)
    return key, value


@contextmanager
def open_workers(scheduler: str | None, n_threads: int | None = None) -> Iterator[Workers]:
    """Open the workers of a scheduler and print the address of its dashboard; or open a pool of threads."""
    from locpmap.scale.workers import workers

    with workers(scheduler, n_threads) as pool:
        if pool.dashboard is not None:
            typer.echo(f"dashboard: {pool.dashboard}", err=True)
        yield pool
