"""What a report is made of, before anyone decides how it looks: headings, sentences, tables, pictures.

The HTML report and the markdown page are two renderings of the same blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Sentences; a notice is one that must not be overlooked."""

    text: str
    notice: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of sentences, each with an optional first word set off."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cell:
    """A cell of a table; one that spans takes the rest of its row."""

    text: str
    strong: bool = False
    spans: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under named columns; numbers are set to the right, columns of words to the left."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = field(default=frozenset({0}))


@dataclass(frozen=True)
class Picture:
    """A PNG under a file name, with what it shows for those who cannot see it.

    One that is private shows data which others own: it stays in the folder of the run.
    """

    name: str
    png: bytes
    alt: str
    caption: str
    is_private: bool = False


@dataclass(frozen=True)
class Code:
    """Words of a machine."""

    text: str


Block = Heading | Paragraph | Bullets | Table | Picture | Code


@dataclass(frozen=True)
class Section:
    """A numbered part of the report."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """The whole report; the subtitle stands under the title."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        """All of its pictures."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]

    def for_others(self) -> Document:
        """The same without what must not be given away: a sentence stands for each private picture."""
        sections = (replace(part, blocks=tuple(map(_public, part.blocks))) for part in self.sections)
        return replace(self, sections=tuple(sections))


def _public(block: Block) -> Block:
    if not isinstance(block, Picture) or not block.is_private:
        return block
    return Paragraph(
        f"Not shown here, for it holds images of the data set: {block.alt}. It is in the run's report.html."
    )
