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

# One line of `locpmap --help` for each command, in order of need.
SUMMARIES = {
    "refine": "Refine a network's segmentation of an image or a folder.",
    "view": "Explore refined segmentations in the browser.",
    "fit-refiner": "Fit a refiner to your network's logits and true labels.",
    "fit": "Fit a CRF to folders of labelled inputs and write a model file.",
    "predict": "Label the inputs in folders with a fitted CRF.",
    "infer": "Decode a model in UAI format and print the score of its labels.",
    "methods": "List the decoders, or describe one decoder and its options.",
    "compile": "Compile the most used kernels now instead of in the first calls.",
    "doctor": 'Print versions, backends, devices and the choice of "auto".',
    "reproduce": "Run one of the paper's experiments and write a report.",
    "report": "Write the report of recorded runs.",
    "data": "List, download and verify the data of the experiments.",
}
# Commands of other packages, which are folders of a clone: the package and how to install it.
VIEWER, PAPER = ("locpmap-viewer", "pip install . ./viewer"), ("locpmap-paper", "pip install '.[all]' ./paper")
OTHERS = {"view": VIEWER, "reproduce": PAPER, "report": PAPER, "data": PAPER}
OWN = tuple(name for name in SUMMARIES if name not in OTHERS)
WHOLE = 1000  # characters of a summary, more than it has: typer shortens longer ones
DECODING = ("infer", "predict")  # commands whose help lists the decoders


class Commands(TyperGroup):
    """Command group that imports a command when it runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*SUMMARIES, *sorted(_added().keys() - OTHERS.keys())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in OWN:
            function = cmd_name.replace("-", "_")
            return _command(cmd_name, getattr(import_module(f"locpmap.cli.{function}"), function))
        added = _added()
        if cmd_name in added:
            try:
                return _command(cmd_name, added[cmd_name].load())
            except ImportError as error:
                package = getattr(added[cmd_name].dist, "name", added[cmd_name].value)
                raise BackendError(f"locpmap {cmd_name} cannot be loaded ({error}): install {package} again") from None
        if cmd_name in OTHERS:
            package, install = OTHERS[cmd_name]
            raise BackendError(f"locpmap {cmd_name} needs {package}, which is not installed: {install} in a clone")
        raise unknown("command", cmd_name, self.list_commands(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, SUMMARIES.get(name) or self.get_command(ctx, name).get_short_help_str(WHOLE))
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
