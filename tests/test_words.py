"""Docstrings, comments, command help and pages avoid words of a former private dialect."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Regular expressions, in which a space stands for any white space, and what to write instead.
INSTEAD = {
    "whoever|whomever": "the subject: the caller, the user, the process",
    "nobody|anybody|somebody|anyone": "the subject: no caller, a user, any process",
    "hears?|heard": "uses, depends on",
    "mend(s|ed|ing)?": "fix",
    "believes?|believed": "assumes, predicts",
    "(says?|said) of": "predicts for",
    "(networks?|neighbours?|pixels?|sites?|kernels?|images?) (says?|said)": "the logits, the message, the prediction",
    "(is|are|was|were) asked": "is requested, is evaluated",
    "(says?|said) so": "reports it, states it",
    "(a|no) say": "influence",
    "(go|goes|gone|going|went) on": "continues, resumes",
    "begins? again|began again": "restarts",
    "lets? go|letting go": "releases",
    "comes? along|came along": "bundled, included",
    "(keeps?|kept) (its|their) words?": "the coverage: the interval contains the true value",
    r"so many(?! \w+ that)|of that many": "n, the given number of",
    "the truth": "the reference implementation, the ground truth, the true labels",
    "twins?": "the Numba or Triton version of",
    "alike": "similar, related",
    "beside": "compared with, next to, in addition to",
    "told": "specified, given",
    "for to": "because",
    "for for": "rephrase",
    "for good": "permanently",
    "for ever": "indefinitely, without a limit",
    "to hand(?!-)": "available",
    "first come first": "in order",
    "knows? nothing of": "is independent of, does not depend on",
    "what is special": "name the thing",
    "way there": "the method, the path",
    "(own|network's|networks') answers?": "the prediction, the labels",
    "refuses?|refused": "raises an error for, cannot decode, rejects",
    "doubts?|doubtful": "1 - confidence, uncertainty",
    "(is|are) expected of": "the expected value, the risk",
    "(is|are) to be good": "is computed over, is optimised",
    "in turns": "alternately",
    "says? nothing": "does not predict, does not determine",
    "learned are": "subject first: .. are learned",
    "what (a|an|the) \\w+ needs": "name the thing: the statistics, the inputs",
}
PATTERNS = {re.compile(rf"\b({words})\b".replace(" ", r"\s+"), re.IGNORECASE): new for words, new in INSTEAD.items()}
ANY = re.compile("|".join(pattern.pattern for pattern in PATTERNS), re.IGNORECASE)
CODE = re.compile(r"``[^`]+``|`[^`\n]+`|^\s*(?:>>>|\.\.\.) .*$", re.MULTILINE)
FENCED = re.compile(r"^```(?!\{).*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def blank(text: str) -> str:
    """Replace everything but white space by dots, so that positions and lines stay the same."""
    return re.sub(r"\S+", lambda match: "." * len(match[0]), text)


def prose_of_page(text: str) -> str:
    """Return a page whose code is blank."""
    return FENCED.sub(lambda match: blank(match[0]), text)


def strings(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the docstrings and the command help texts of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None and isinstance(node.body[0], ast.Expr):
                yield node.body[0].value
        elif isinstance(node, ast.keyword) and node.arg in ("help", "epilog"):
            yield node.value


def prose_of_module(source: str) -> str:
    """Return a module of which everything is blank but docstrings, command help and comments."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def position(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())  # ast counts bytes

    prose = list(blank(source))
    for node in strings(ast.parse(source)):
        first = position(node.lineno, node.col_offset)
        last = position(node.end_lineno or node.lineno, node.end_col_offset or 0)
        text = CODE.sub(lambda match: blank(match[0]), source[first:last])
        prose[first:last] = text.replace('"', " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            first = starts[token.start[0] - 1] + token.start[1]
            text = CODE.sub(lambda match: blank(match[0]), token.string)
            prose[first : first + len(text)] = text.replace("#", " ")
    return "".join(prose)


def findings(prose: str) -> list[tuple[int, str, str]]:
    """Return the line, the words and the replacement of every pattern that a text contains."""
    if not ANY.search(prose):
        return []
    matches = [(match, new) for pattern, new in PATTERNS.items() for match in pattern.finditer(prose)]
    return sorted((prose.count("\n", 0, m.start()) + 1, " ".join(m[0].split()), new) for m, new in matches)


def check(paths: list[Path]) -> None:
    """Fail with file, line, words and replacement if a file contains words of the table."""
    reports = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        prose = prose_of_module(text) if path.suffix == ".py" else prose_of_page(text)
        name = path.relative_to(ROOT)
        reports += [f"{name}:{line}: '{words}': write instead: {new}" for line, words, new in findings(prose)]
    assert not reports, "\n" + "\n".join(reports)


@pytest.mark.parametrize("folder", ["src/locpmap", "viewer/src", "paper/src", "docs", "examples", "benchmarks"])
def test_modules_are_in_plain_english(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    if not paths:
        pytest.skip(f"{folder} is not part of this distribution")
    check(paths)


def test_pages_are_in_plain_english() -> None:
    patterns = ("docs/*.md", "docs/decisions/*.md", ".github/*.md", ".github/*/*.md")
    pages = [page for pattern in patterns for page in ROOT.glob(pattern)]
    names = ("README", "CONTRIBUTING", "CHANGELOG", "benchmarks/README", "viewer/README", "paper/README")
    check(sorted(pages) + [path for name in names if (path := ROOT / f"{name}.md").exists()])


MODULE = '''"""ä: so
many sites."""

whoever = "nobody"  # mends it


def fit(text=help("ä", help="What the network says "
                   "of it")):
    """Return ``the truth``.

    >>> print("for ever")
    """
    # A comment that goes
    # on; so
    many = 1
'''


def test_words_are_found_in_docstrings_comments_and_help_only() -> None:
    found = [(line, words) for line, words, _ in findings(prose_of_module(MODULE))]
    assert found == [(1, "so many"), (4, "mends"), (7, "network says"), (7, "says of"), (13, "goes on")]


def test_words_are_found_in_pages_outside_of_code() -> None:
    page = "# Title\n`whoever` is told\n```python\nnobody = 1\n```\nKernels and their\ntwins.\n"
    assert [(line, words) for line, words, _ in findings(prose_of_page(page))] == [(2, "told"), (7, "twins")]
