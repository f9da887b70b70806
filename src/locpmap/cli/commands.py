"""The commands by name, imported when they run: listing them costs nothing.

Other packages add commands through the entry-point group ``locpmap.commands``.  An entry point is a function with
typer's annotations, or a ``typer.Typer`` with commands of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from locpmap.errors import BackendError, unknown

GROUP = "locpmap.commands"

# What `locpmap --help` says of each.
OWN = {
    "infer": "Decode a model and print the score of the labels found.",
    "fit": "Learn the weights of a CRF from folders and write a model file.",
    "predict": "Label every input of the folders.",
    "refine": "Refine a segmentation, or all segmentations of two folders.",
    "methods": "List the decoders, or describe one with its options and their defaults.",
    "view": "Show images and their logits in the browser, with sliders.",
    "doctor": 'Print versions, backends, devices and what "auto" would choose.',
}
PAPER = {
    "reproduce": "Run one of the paper's experiments and write a report.",
    "report": "Write the report of recorded runs.",
    "data": "List, download and verify the data of the experiments.",
}
NEEDED = "locpmap-paper"  # the distribution that brings them
DECODING = ("infer", "predict")  # whose help lists the decoders


class Commands(TyperGroup):
    """A group whose commands are imported when one of them runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*OWN, *PAPER, *sorted(_added().keys() - PAPER.keys())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in OWN:
            return _command(cmd_name, getattr(import_module(f"locpmap.cli.{cmd_name}"), cmd_name))
        added = _added()
        if cmd_name in added:
            try:
                return _command(cmd_name, added[cmd_name].load())
            except ImportError as error:
                package = getattr(added[cmd_name].dist, "name", added[cmd_name].value)
                raise BackendError(f"locpmap {cmd_name} cannot be loaded ({error}): install {package} again") from None
        if cmd_name in PAPER:
            install = "pip install ./paper in a clone"
            raise BackendError(f"locpmap {cmd_name} needs {NEEDED}, which is not installed: {install}")
        raise unknown("command", cmd_name, self.list_commands(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = OWN | PAPER
        rows = [
            (name, known.get(name) or self.get_command(ctx, name).get_short_help_str())
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _added() -> dict[str, Any]:
    """Return the entry points of other packages by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _command(name: str, what: Any) -> Any:
    """Return the command of a function, or the group of a ``typer.Typer``."""
    if isinstance(what, typer.Typer):
        return typer.main.get_command(what)
    epilog = None
    if name in DECODING:
        from locpmap.inference import DECODERS

        epilog = f"Methods: {', '.join(DECODERS)}.  `locpmap methods NAME` describes a method and its options."
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, epilog=epilog)(what)
    return typer.main.get_command(alone)
