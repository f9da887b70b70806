"""From the folders of recorded runs to the files that people read."""

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

Every number on this page was rendered from recorded runs by `locpmap report --markdown`; edit nothing here by hand.
"""


def write_report(folder: PathLike) -> Path:
    """Write ``report.html`` and ``figures/*.png`` into the folder of a run, from its result.json and pictures.npz.

    The page needs no other file and asks nothing of any network.  Every file is written completely or not at all, and
    the same run gives the same bytes.  Takes some seconds, nearly all of them for the figures.

    Returns:
        The path of the page.

    Raises:
        InputError: The folder holds no record of a run, or one that is damaged or of another schema.

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
    """Render recorded runs into one page of markdown, their figures into ``figures`` beside it.

    Figures that show photographs of a data set are left out: pages are for everyone, such data are not.

    Args:
        folders: The folders of the runs, in the order to show; their names have to differ, they name the figures.
        target: The page, such as ``docs/results.md``.

    Returns:
        The path of the page.

    >>> write_markdown([], "results.md")
    Traceback (most recent call last):
    locpmap.errors.InputError: folders is empty, expected at least one run
    """
    if not folders:
        raise InputError("folders is empty, expected at least one run")
    names = [Path(folder).resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise InputError(f"folders are named {', '.join(names)}, expected names that differ: they name the figures")
    page = checked_target(target)
    read = [_read(folder) for folder in folders]
    parts = [HEAD]
    for name, (whole, record) in zip(names, read, strict=True):
        document = whole.for_others()
        _write_pictures(document.pictures, page.parent / "figures", f"{name}-")
        parts.append(markdown.render(document, f"figures/{name}-") + "\n\n" + _origin(record) + "\n")
    write_bytes(page, ["\n".join(parts).encode()])
    return Path(target)


def _read(folder: PathLike) -> tuple[Document, Record]:
    record = read_record(folder)
    pictures = read_pictures(folder, record)
    # They load matplotlib.
    from locpmap_paper.report.document import compose
    from locpmap_paper.report.scene_document import compose as compose_scenes

    return (compose_scenes if record.is_scenes else compose)(record, pictures), record


def _origin(record: Record) -> str:
    """The last line of a run's part of a page."""
    seeds = ", ".join(map(str, record.protocol.seeds))
    version = record.provenance.versions.get("locpmap", "unknown")
    source = f"From {record.provenance.command}, seeds {seeds}, locpmap {version}, {record.provenance.finished}."
    return f"*{markdown.plain(source)}*"


def _write_pictures(pictures: list[Picture], folder: Path, before: str) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}") from None
    for picture in pictures:
        write_bytes(folder / f"{before}{picture.name}", [picture.png])
