"""Rules of the viewer's and the paper's packages: public imports from the library, and short files."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_LINES = 400


def library_imports(code: str) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of every import from the library; the name of a plain import is empty."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "locpmap")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "locpmap":
            yield from ((str(node.module), alias.name) for alias in node.names)


def is_public(module: str, name: str) -> bool:
    """Return whether the name is in the ``__all__`` of the library or of a first-level package."""
    if module.count(".") > 1:
        return False
    public = getattr(importlib.import_module(module), "__all__", ())
    return name in public or (module, name) == ("locpmap", "__version__")


def check_files(files: Iterable[Path]) -> None:
    """Check that files are short and have docstrings."""
    for file in files:
        text = file.read_text()
        assert len(text.splitlines()) <= MAX_LINES, file
        assert ast.get_docstring(ast.parse(text)), file
