"""``locpmap report``: write the report of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER..", help="Folders that `locpmap reproduce` wrote.")],
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one Markdown page about all runs instead, with figures next to it."),
    ] = None,
) -> None:
    """Write report.html and its figures into the folder of each recorded run."""
    from locpmap_paper.report import write_markdown, write_report

    if markdown is not None:
        typer.echo(f"written {write_markdown(folders, markdown)}")
        return
    for folder in folders:
        typer.echo(f"written {write_report(folder)}")
