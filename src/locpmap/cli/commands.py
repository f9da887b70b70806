"""The subcommands by name; each is imported when it runs, so that listing them is fast.

Other packages add commands through the entry-point group ``locpmap.commands``.  An entry point is a function with
typer annotations, or a ``typer.Typer`` with its own subcommands.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from locpmap.errors import BackendError, unknown

GROUP = "locpmap.commands"

# One line of `locpmap --help` for each command.
OWN = {
    "infer": "Decode a model in UAI format and print the score of its labels.",
    "fit": "Fit a CRF to folders of labelled inputs and write a model file.",
    "predict": "Label the inputs in folders with a fitted CRF.",
    "refine": "Refine a network's segmentation of one image, or of a folder of images.",
    "methods": "List the decoders, or describe one decoder and its options.",
    "doctor": 'Print versions, backends, devices and the choice of "auto".',
}
VIEWER = {"view": "Explore refined segmentations in the browser."}
PAPER = {
    "reproduce": "Run one of the paper's experiments and write a report.",
    "report": "Write the report of recorded runs.",
    "data": "List, download and verify the data of the experiments.",
}
OTHERS = VIEWER | PAPER  # commands of the packages locpmap-viewer and locpmap-paper, in folders of a clone
DECODING = ("infer", "predict")  # commands whose help lists the decoders


class Commands(TyperGroup):
    """Command group that imports a command when it runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*OWN, *OTHERS, *sorted(_added().keys() - OTHERS.keys())]

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
        if cmd_name in OTHERS:
            folder = "viewer" if cmd_name in VIEWER else "paper"
            install = f"pip install ./{folder} in a clone"
            raise BackendError(f"locpmap {cmd_name} needs locpmap-{folder}, which is not installed: {install}")
        raise unknown("command", cmd_name, self.list_commands(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = OWN | OTHERS
        rows = [
            (name, known.get(name) or self.get_command(ctx, name).get_short_help_str())
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _added() -> dict[str, Any]:
    """Return the entry points of other packages, by command name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _command(name: str, what: Any) -> Any:
    """Return the command of an annotated function, or the group of a ``typer.Typer``."""
    if isinstance(what, typer.Typer):
        return typer.main.get_command(what)
    epilog = None
    if name in DECODING:
        from locpmap.inference import DECODERS

        epilog = f"Methods: {', '.join(DECODERS)}.  `locpmap methods NAME` describes a method and its options."
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, epilog=epilog)(what)
    return typer.main.get_command(alone)
