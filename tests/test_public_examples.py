"""The example of every public name uses only `lp`, `np` and names that the example itself imports or assigns."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import locpmap as lp

GIVEN = {"lp", "np", *dir(builtins)}


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes and public methods of the library with their full names."""
    modules = [lp, lp.result, lp.metrics]
    for info in pkgutil.iter_modules(lp.__path__, "locpmap."):
        if info.ispkg and info.name not in ("locpmap.cli", "locpmap.kernels"):
            try:
                modules.append(import_module(info.name))
            except ImportError:  # an optional package is not installed
                continue
    for module in modules:
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)) or name.startswith("_"):
                continue
            yield f"{module.__name__}.{name}", value
            for member, method in vars(value).items() if inspect.isclass(value) else ():
                yield f"{module.__name__}.{name}.{member}", getattr(method, "__func__", method)


EXAMPLES = {
    name: doctest.script_from_examples(value.__doc__)
    for name, value in public_names()
    if isinstance(getattr(value, "__doc__", None), str) and ">>> " in value.__doc__
}


def unknown_names(source: str) -> set[str]:
    """Return the names that a program reads and neither defines, imports nor receives."""
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    known = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | GIVEN
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
    return {node.id for node in names} - known


@pytest.mark.parametrize("name", EXAMPLES)
def test_public_example_runs_on_its_own(name: str) -> None:
    assert not unknown_names(EXAMPLES[name])


def test_unknown_names_are_found() -> None:
    assert unknown_names("import os\na = os.sep + b\nlp.infer(c for c in a)") == {"b"}
