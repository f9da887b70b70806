"""Directive that inserts the help text of a command: ``{command-help} refine``."""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from typer.testing import CliRunner

from locpmap.cli import app


class CommandHelp(Directive):
    """Run ``locpmap COMMAND --help`` and insert its output as a literal block."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        answer = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, [*self.arguments, "--help"])
        if answer.exit_code:
            raise self.error(
                f"locpmap {' '.join(self.arguments)} --help ended with {answer.exit_code}: {answer.output}"
            )
        block = nodes.literal_block(answer.output, answer.output.strip())
        block["language"] = "text"
        return [block]


def setup(application: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    application.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
