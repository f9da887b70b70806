"""The elements of a report, independent of their rendering: headings, paragraphs, tables, pictures.

The HTML report and the Markdown page render the same blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text, highlighted if ``notice`` is True."""

    text: str
    notice: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of sentences, each after a term in bold."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cell:
    """A cell of a table; a spanning cell takes the rest of its row."""

    text: str
    strong: bool = False
    spans: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under column headings; columns in `words` are left-aligned, columns of numbers right-aligned."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = field(default=frozenset({0}))


@dataclass(frozen=True)
class Picture:
    """A PNG with its file name, alternative text and caption.

    A private picture shows data that may not be redistributed; it stays in the folder of the run.
    """

    name: str
    png: bytes
    alt: str
    caption: str
    is_private: bool = False


@dataclass(frozen=True)
class Code:
    """A command or other verbatim text."""

    text: str


Block = Heading | Paragraph | Bullets | Table | Picture | Code


@dataclass(frozen=True)
class Section:
    """A numbered section of the report."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """The whole report with title and subtitle."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures of the report."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]

    def without_private_pictures(self) -> Document:
        """Return the report for publication, with a sentence in place of each private picture."""
        sections = (replace(part, blocks=tuple(map(_public, part.blocks))) for part in self.sections)
        return replace(self, sections=tuple(sections))


def _public(block: Block) -> Block:
    if not isinstance(block, Picture) or not block.is_private:
        return block
    return Paragraph(
        f"Not shown here because it contains images of the data set: {block.alt}. See report.html of the run."
    )
