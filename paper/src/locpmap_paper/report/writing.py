"""Writing of reports: HTML and Markdown files from the folders of recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from locpmap.errors import InputError
from locpmap.formats import PathLike, checked_target, write_bytes
from locpmap_paper.report import html, markdown
from locpmap_paper.report.blocks import Document, Picture
from locpmap_paper.report.pictures import read_pictures
from locpmap_paper.report.reading import read_record
from locpmap_paper.report.record import Record

HEAD = """# Results

This page is generated from recorded runs by `locpmap report --markdown`. Do not edit it by hand.
"""


def write_report(folder: PathLike) -> Path:
    """Write ``report.html`` and ``figures/*.png`` into the folder of a run.

    The report is built from ``result.json`` and ``pictures.npz`` in that folder.  The page is self-contained and loads
    nothing from the network.  Each file is written atomically.  Repeated calls write identical bytes.  Writing takes a
    few seconds, mostly for the figures.

    Args:
        folder (str or Path): Folder of a recorded run.

    Returns:
        Path: The path of the page.

    Raises:
        InputError: If the folder has no record, or if the record is damaged or has an unsupported schema version.

    Example:
        >>> write_report("no/such/folder")
        Traceback (most recent call last):
        locpmap.errors.InputError: no/such/folder does not exist, expected the folder of a run
    """
    document, _ = _read(folder)
    target = Path(folder) / "report.html"
    checked_target(target)
    _write_pictures(document.pictures, Path(folder) / "figures", "")
    write_bytes(target, [html.render(document).encode()])
    return target


def write_markdown(folders: Sequence[PathLike], target: PathLike) -> Path:
    """Write one Markdown page about recorded runs.

    The figures are written to ``figures`` next to the page.  Figures that contain photographs of a data set are left
    out, because the page may be published and the photographs may not.

    Args:
        folders (sequence of str or Path): Folders of recorded runs, in the order of the page.  Their names must
            differ, because the names of the figures begin with them.
        target (str or Path): Path of the page, such as ``docs/results.md``.

    Returns:
        Path: The path of the page.

    Raises:
        InputError: If no folder is given, two folders have the same name, or a record cannot be read.

    Example:
        >>> write_markdown([], "results.md")
        Traceback (most recent call last):
        locpmap.errors.InputError: folders is empty, expected at least one run
    """
    if not folders:
        raise InputError("folders is empty, expected at least one run")
    names = [Path(folder).resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise InputError(f"folders are named {', '.join(names)}, expected different names: figures are named by them")
    page = checked_target(target)
    read = [_read(folder) for folder in folders]
    parts = [HEAD]
    for name, (whole, record) in zip(names, read, strict=True):
        document = whole.without_private_pictures()
        _write_pictures(document.pictures, page.parent / "figures", f"{name}-")
        parts.append(markdown.render(document, f"figures/{name}-") + "\n\n" + _origin(record) + "\n")
    write_bytes(page, ["\n".join(parts).encode()])
    return Path(target)


def _read(folder: PathLike) -> tuple[Document, Record]:
    record = read_record(folder)
    pictures = read_pictures(folder, record)
    # Imported here because both modules import matplotlib.
    from locpmap_paper.report.document import compose
    from locpmap_paper.report.scene_document import compose as compose_scenes

    return (compose_scenes if record.is_scenes else compose)(record, pictures), record


def _origin(record: Record) -> str:
    """Return the last line of the part about one run."""
    seeds = ", ".join(map(str, record.protocol.seeds))
    version = record.provenance.versions.get("locpmap", "unknown")
    source = f"From {record.provenance.command}, seeds {seeds}, locpmap {version}, {record.provenance.finished}."
    return f"*{markdown.plain(source)}*"


def _write_pictures(pictures: list[Picture], folder: Path, before: str) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be created: {error.strerror}") from None
    for picture in pictures:
        write_bytes(folder / f"{before}{picture.name}", [picture.png])
