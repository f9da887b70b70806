"""Rendering of a report as one self-contained HTML file: inline styles, pictures as data, no scripts."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from html import escape

from locpmap_paper.report.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Heading,
    Paragraph,
    Picture,
    Section,
    Table,
)

STYLE = """
:root { --ink: #1f2933; --soft: #52606d; --line: #d9e2ec; --tint: #f5f7fa; --accent: #0b5c8f; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: #fff; color: var(--ink); font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
header, main, footer { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 44px; }
h1 { font-size: 2.1rem; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }
.subtitle { color: var(--soft); margin: 0 0 20px; }
nav ol { display: flex; flex-wrap: wrap; gap: 4px 22px; list-style: none; padding: 12px 0; margin: 0;
  border-block: 1px solid var(--line); font-size: 0.92rem; }
a { color: var(--accent); text-decoration: none; }
a:hover, a:focus { text-decoration: underline; }
section { padding-top: 26px; display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); column-gap: 36px; }
section > * { grid-column: 1 / -1; }
section > .half { grid-column: auto; }
.columns { columns: 2; column-gap: 36px; }
.columns li { break-inside: avoid; }
h2 { font-size: 1.5rem; line-height: 1.3; margin: 14px 0 12px; }
h3 { font-size: 1.14rem; margin: 34px 0 8px; }
p, ul { margin: 0 0 14px; }
p { max-width: 92ch; }
ul { padding-left: 22px; }
li { margin-bottom: 6px; }
.jump { font-size: 0.9rem; color: var(--soft); }
.notice { background: #fff4d6; border-left: 4px solid #c98a00; padding: 10px 14px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.86rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
.table figcaption { color: var(--ink); font-weight: 600; margin: 18px 0 4px; font-size: 0.95rem; }
th, td { padding: 5px 10px; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }
td, thead th { white-space: nowrap; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; color: var(--soft); font-weight: 600; }
tbody th { font-weight: 400; text-align: left; position: sticky; left: 0; background: #fff; min-width: 9em; }
tbody tr:nth-child(even) > * { background: var(--tint); }
.word { text-align: left; white-space: normal; }
td.long { min-width: 22em; overflow-wrap: anywhere; }
td.short { white-space: nowrap; }
thead th:first-child { text-align: left; }
td.wide { text-align: left; color: var(--soft); font-style: italic; white-space: normal; }
strong { font-weight: 700; }
figure { margin: 0 0 28px; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-top: 6px; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 4px; padding: 10px 14px; margin: 0 0 18px;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.88rem; }
footer { color: var(--soft); font-size: 0.88rem; padding-block: 26px 44px; }
@media (max-width: 900px) {
  section > .half { grid-column: 1 / -1; }
  .columns { columns: 1; }
}
@media (max-width: 640px) {
  header, main, footer { padding-inline: 16px; }
  header { padding-top: 24px; }
  h1 { font-size: 1.6rem; }
  h2 { font-size: 1.28rem; }
  nav ol { flex-direction: column; }
  table { font-size: 0.8rem; }
  th, td { padding: 5px 7px; }
  tbody th { max-width: 11em; min-width: 7.5em; }
  td.long { min-width: 17em; }
  .broad figcaption::after { content: " (scrolls sideways)"; font-weight: 400; color: var(--soft); }
  .wide img { max-width: none; width: 600px; }
}
@page { margin: 14mm; }
@media print {
  body { font-size: 10pt; }
  header, main, footer { max-width: none; padding-inline: 0; }
  nav { display: none; }
  .scroll { overflow: visible; }
  table { font-size: 7pt; }
  td, thead th { white-space: normal; }
  th, td { padding: 2px 4px; }
  tbody th { position: static; min-width: 0; }
  td.long { min-width: 0; }
  figure:not(.table), tr, .notice { break-inside: avoid; }
  thead { display: table-header-group; }
  h2, h3, figcaption { break-after: avoid; }
}
"""
LONG, SHORT = 60, 24  # characters: longer text cells get a minimum width, shorter ones stay on one line

HALF = 540  # pixels: narrower tables take half of the page
WIDE = 700  # pixels; wider pictures scroll on a phone, to keep their text legible
BROAD = 5  # tables with more columns are too wide for a phone
JUMP = 5  # sections with more headings begin with links to them


def render(document: Document) -> str:
    """Return the whole page, with all text escaped and no external links."""
    return "\n".join(_page(document)) + "\n"


def _page(document: Document) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<link rel="icon" href="data:,">'
    yield f"<title>{escape(document.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f'<header>\n<h1>{escape(document.title)}</h1>\n<p class="subtitle">{escape(document.subtitle)}</p>'
    links = (f'<li><a href="#part-{n}">{escape(s.title)}</a></li>' for n, s in enumerate(document.sections, 1))
    yield f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>\n</header>\n<main>'
    for n, section in enumerate(document.sections, 1):
        yield from _section(section, n)
    yield "</main>\n<footer>Generated by locpmap from the result.json in the same folder.</footer>\n</body>\n</html>"


def _section(section: Section, number: int) -> Iterator[str]:
    yield f'<section id="part-{number}">\n<h2>{number}. {escape(section.title)}</h2>'
    headings = [block.text for block in section.blocks if isinstance(block, Heading)]
    if len(headings) > JUMP:
        links = (f'<a href="#{_anchor(text)}">{escape(text)}</a>' for text in headings)
        yield f'<p class="jump">{" · ".join(links)}</p>'
    for block in section.blocks:
        yield _block(block)
    yield "</section>"


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _block(block: Block) -> str:
    match block:
        case Heading(text):
            return f'<h3 id="{_anchor(text)}">{escape(text)}</h3>'
        case Paragraph(text, notice):
            if notice:
                return f'<p class="notice">{escape(text)}</p>'
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            lines = (f"<li><strong>{escape(word)}</strong>: {escape(text)}</li>" for word, text in items)
            kind = ' class="columns"' if len(items) > 1 else ""  # takes the whole width
            return f"<ul{kind}>{''.join(lines)}</ul>"
        case Table():
            return _table(block)
        case Picture(_, png, alt, caption, _):
            data = base64.b64encode(png).decode("ascii")
            width, height = (int.from_bytes(png[start : start + 4]) for start in (16, 20))  # from the PNG header
            size = f'width="{width}" height="{height}"'
            image = f'<div class="scroll"><img src="data:image/png;base64,{data}" {size} alt="{escape(alt)}"></div>'
            kind = "wide" if width > WIDE else "half"
            return f'<figure class="{kind}">{image}<figcaption>{escape(caption)}</figcaption></figure>'
        case Code(text):
            return f"<pre><code>{escape(text)}</code></pre>"


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col" class="{"word" if n in table.words else "number"}">{escape(name)}</th>'
        for n, name in enumerate(table.columns)
    )
    rows = "\n".join(f"<tr>{_row(row, table)}</tr>" for row in table.rows)
    body = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>"
    # A wide table scrolls on a small screen; tabindex makes it reachable by keyboard.
    caption = escape(table.caption)
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table>{body}</table></div>'
    kind = "table broad" if len(table.columns) > BROAD else "table"
    kind += " half" if _pixels(table) < HALF else ""
    return f'<figure class="{kind}"><figcaption>{caption}</figcaption>{region}</figure>'


def _pixels(table: Table) -> int:
    """Estimate the width of a table on a screen."""
    texts = [table.columns, *([cell.text for cell in row] for row in table.rows)]
    longest = [max(map(len, column), default=0) for column in itertools.zip_longest(*texts, fillvalue="")]
    return sum(20 + 7 * length for length in longest)


def _row(row: tuple[Cell, ...], table: Table) -> str:
    head, *rest = row
    return f'<th scope="row">{_text(head)}</th>' + "".join(_cell(n, cell, table) for n, cell in enumerate(rest, 1))


def _cell(column: int, cell: Cell, table: Table) -> str:
    if cell.spans:
        return f'<td class="wide" colspan="{len(table.columns) - column}">{_text(cell)}</td>'
    kind = ""
    if column in table.words:
        size = " long" if len(cell.text) > LONG else " short" if len(cell.text) < SHORT else ""
        kind = f' class="word{size}"'
    return f"<td{kind}>{_text(cell)}</td>"


def _text(cell: Cell) -> str:
    return f"<strong>{escape(cell.text)}</strong>" if cell.strong else escape(cell.text)
