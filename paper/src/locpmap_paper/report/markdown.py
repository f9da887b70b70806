"""Rendering of a report as GitHub Markdown, with pictures in separate files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

from locpmap_paper.report.blocks import Block, Bullets, Cell, Code, Document, Heading, Paragraph, Picture, Table


def render(document: Document, pictures: str) -> str:
    """Render the document under a heading of level 2; `pictures` is the prefix of picture paths."""
    return "\n\n".join(_lines(document, pictures))


def _lines(document: Document, pictures: str) -> Iterator[str]:
    yield f"## {plain(document.title)}"
    yield plain(document.subtitle) + "."
    for section in document.sections:
        yield f"### {plain(section.title)}"
        for block in section.blocks:
            yield _block(block, pictures)


def _block(block: Block, pictures: str) -> str:
    match block:
        case Heading(text):
            return f"#### {plain(text)}"
        case Paragraph(text, notice):
            return f"> **Note.** {plain(text)}" if notice else plain(text)
        case Bullets(items):
            return "\n".join(f"- **{plain(word)}**: {plain(text)}" for word, text in items)
        case Table():
            return _table(block)
        case Picture(name, _, alt, caption, _):
            return f"![{plain(alt)}]({quote(pictures + name)})\n\n*{plain(caption)}*"
        case Code(text):
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            return f"{fence}\n{text}\n{fence}"


def _table(table: Table) -> str:
    rule = ("---" if n in table.words else "---:" for n in range(len(table.columns)))
    lines = [_row(map(plain, table.columns)), _row(rule)]
    for row in table.rows:
        cells = [_cell(cell) for cell in row]
        lines.append(_row(cells + [""] * (len(table.columns) - len(cells))))
    return f"**{plain(table.caption)}**\n\n" + "\n".join(lines)


def _row(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = plain(cell.text)
    return f"**{text}**" if cell.strong and text else text


def plain(text: str) -> str:
    """Escape text for Markdown and put it on one line."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))
