"""``locpmap data``: list, download and verify the data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap_paper.data import Check

app = typer.Typer(
    add_completion=False,
    help="List, download and verify the data of the experiments.",
    epilog="Files are stored in $LOCPMAP_DATA or else the user's cache folder; $LOCPMAP_OFFLINE=1 forbids downloads.",
    rich_markup_mode=None,
)

Folder = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the files; the cache folder by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Data sets; all by default.")]


@app.command("list")
def list_datasets(folder: Folder = None, as_json: AsJson = False) -> None:
    """List the data sets with size, licence and citation."""
    from locpmap_paper import data

    states = {name: _summary(data.verify(name, folder)) for name in data.DATASETS}
    if as_json:
        sets = [_dataset_report(name) | {"state": states[name]} for name in data.DATASETS]
        typer.echo(json.dumps({"folder": str(folder or data.folder()), "datasets": sets}))
        return
    for dataset in data.DATASETS.values():
        typer.echo(f"{dataset.name:<14} {dataset.title}; {dataset.n_bytes / 1e6:.1f} MB, {states[dataset.name]}")
        for what in ("shape", "licence", "citation"):
            typer.echo(f"  {what:<12} {getattr(dataset, what)}")
    typer.echo(f"\n{'folder':<14} {folder or data.folder()}")


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets, such as mnist.")],
    folder: Folder = None,
    offline: Annotated[bool, typer.Option("--offline", help="Fail if files are missing; download nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download missing or altered files and verify them."""
    from locpmap_paper.data.registry import known_dataset

    for name in names:
        known_dataset(name)  # check all names before the first download
    paths = {name: fetch_with_bar(name, folder, offline or None, hidden=as_json) for name in names}
    if as_json:
        typer.echo(json.dumps({name: [str(path) for path in files] for name, files in paths.items()}))
        return
    for files in paths.values():
        for path in files:
            typer.echo(path)


@app.command()
def verify(names: Names = None, folder: Folder = None, as_json: AsJson = False) -> None:
    """Compare files with their published checksums.

    Exit with status 2 if a file is altered, or if a file of a data set given by NAME is missing.
    """
    from locpmap_paper import data

    checks = {name: data.verify(name, folder) for name in names or data.DATASETS}
    if as_json:
        typer.echo(json.dumps({name: [_check_report(check) for check in found] for name, found in checks.items()}))
    else:
        for found in checks.values():
            for check in found:
                typer.echo(f"{check.state:<8} {check.path}" + ("" if check.state == "ok" else f" {check.says}"))
    for name, found in checks.items():
        for check in found:
            if check.state == "altered" or (names and check.state == "missing"):
                raise InputError(f"{check.path} of {name} {check.says}")


def fetch_with_bar(name: str, folder: Path | None, offline: bool | None, *, hidden: bool) -> list[Path]:
    """Return the files of a data set; download missing ones and show a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from locpmap_paper import data

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=hidden or not console.is_terminal) as bars:
        task = bars.add_task(f"fetching {name}", total=None)

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        return data.fetch(name, folder=folder, offline=offline, progress=show)


def _summary(checks: list[Check]) -> str:
    """Return one word for the state of all files."""
    states = {check.state for check in checks}
    return next(state for state in ("altered", "missing", "ok") if state in states)


def _dataset_report(name: str) -> dict[str, Any]:
    from locpmap_paper.data import DATASETS

    dataset = DATASETS[name]
    files = [
        {"name": f.name, "addresses": f.addresses, "sha256": f.sha256, "n_bytes": f.n_bytes} for f in dataset.files
    ]
    words = {what: getattr(dataset, what) for what in ("name", "title", "licence", "citation", "shape", "n_bytes")}
    return words | {"files": files}


def _check_report(check: Check) -> dict[str, str]:
    return {"file": check.file.name, "path": str(check.path), "state": check.state, "says": check.says}
