"""Rules of the source: imports between layers, lazy imports, matching kernel signatures and forbidden words."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.layers import LAYERS, PAGE, page_with_layers

import locpmap
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.spec import Kernels

SOURCE = Path(locpmap.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

PARTS = [set(layer) for layer in LAYERS]
PACKAGE = PARTS.index({""})
HEAVY = (
    *("torch", "numba", "matplotlib", "scipy", "triton", "pandas", "PIL", "mlxtend", "safetensors", "sklearn"),
    *("pooch", "requests", "urllib3", "fastapi", "uvicorn", "dask", "distributed", "zarr", "rasterio", "nibabel"),
    *("xarray", "monai", "transformers", "skimage"),
)
MAX_LINES = 400


def part_of(file: Path) -> str:
    """Return the part of the library that a file belongs to; '' for the package itself."""
    first = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    return {"__init__": "", "__main__": "cli"}.get(first, first)


@cache
def imported(file: Path) -> tuple[str, ...]:
    """Return the absolute names of all modules that a file imports, including imports inside functions."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports relatively, so this test cannot place it"
            assert node.module is not None
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def is_forbidden_import(part: str, name: str) -> bool:
    """Return whether a part of the library must not import the module."""
    package, *rest = name.split(".")
    if package != "locpmap":
        return False
    height = {member: level for level, members in enumerate(PARTS) for member in members}
    other = rest[0] if rest else ""
    return other != part and height.get(other, PACKAGE) >= height[part]


def test_contributing_page_lists_the_layers() -> None:
    page = PAGE.read_text()
    assert page == page_with_layers(page), "CONTRIBUTING.md is out of date: run python -m tests.layers"


def test_every_part_has_a_layer() -> None:
    assert {part_of(file) for file in FILES} <= set().union(*PARTS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_down_the_layers(file: Path) -> None:
    wrong = [name for name in imported(file) if is_forbidden_import(part_of(file), name)]
    assert not wrong, f"{part_of(file)} imports {', '.join(wrong)}"


def test_forbidden_imports_are_detected() -> None:
    assert is_forbidden_import("graphs", "locpmap.noise.key_of")
    assert is_forbidden_import("kernels", "locpmap.potentials.Potentials")
    assert is_forbidden_import("potentials", "locpmap.infer")  # the package is above all its parts
    assert not is_forbidden_import("inference", "locpmap.result.Result")
    assert not is_forbidden_import("inference", "numpy.typing")
    assert is_forbidden_import("", "locpmap.cli.main")
    assert not is_forbidden_import("cli", "locpmap")


def test_modules_have_no_import_cycles() -> None:
    names = {".".join(("locpmap", *file.relative_to(SOURCE).with_suffix("").parts)): file for file in FILES}
    uses = {
        name: {module for i in imported(file) for module in (i, i.rpartition(".")[0]) if module in names}
        for name, file in names.items()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"cycle: {' -> '.join((*path, name))}"
        if name not in done:
            for other in uses[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in names:
        visit(name, ())


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_only_the_numba_kernels_import_numba(name: str) -> None:
    users = {file.parent.name for file in FILES if any(i.split(".")[0] == name for i in imported(file))}
    assert users <= {"numba"}


@pytest.mark.parametrize(
    ("package", "parts"),
    [
        ("torch", {"nn", "kernels/triton"}),
        ("triton", {"kernels/triton"}),
        ("sklearn", {"estimators"}),
        ("skimage", {"measuring"}),
        ("xarray", set()),
        ("monai", set()),
        ("transformers", set()),
        ("safetensors", {"formats"}),
        ("PIL", {"formats"}),
        ("fastapi", set()),
        ("uvicorn", set()),
        ("matplotlib", set()),
        ("locpmap_paper", set()),
        ("locpmap_viewer", set()),
    ],
)
def test_optional_packages_are_imported_only_by_their_parts(package: str, parts: set[str]) -> None:
    """Other parts use torch only if the caller has imported it."""
    users = [file.relative_to(SOURCE) for file in FILES if any(i.split(".")[0] == package for i in imported(file))]
    assert not [user for user in users if not any(user.is_relative_to(part) for part in parts)]


# modules loaded by a fresh process


def loaded_modules(code: str) -> set[str]:
    """Return the heavy modules that are loaded in a fresh interpreter after it runs the code."""
    report = f"{code}\nimport sys; print('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-c", report]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_modules(
        "import locpmap, locpmap.integrations\nfor name in locpmap.__all__: getattr(locpmap, name)"
    )


def test_help_loads_nothing_heavy() -> None:
    """One process runs all commands, because a module loaded by any of them stays loaded."""
    code = """
import sys
from locpmap.cli import main
from locpmap.cli.commands import OWN
for words in ([], *([name] for name in OWN)):
    try:
        main([*words, "--help"])
    except SystemExit as end:
        assert not end.code, words"""
    assert not loaded_modules(code)


def test_reference_backend_does_not_load_numba() -> None:
    code = """
import numpy as np, locpmap as lp
lp.infer(lp.Potentials.grid(np.zeros((2, 2, 3)), 1.0), 'locpmap', n_samples=2, backend='reference')"""
    assert "numba" not in loaded_modules(code)


def test_loaded_heavy_modules_are_detected() -> None:
    assert loaded_modules("import scipy") == {"scipy"}


# kernels


def operations(backend: str) -> dict[str, list[str]]:
    """Return names and arguments of a backend's operations: files with a function of the same name.

    Compiled functions that are not kernels are helpers that kernels call, not operations.
    """
    found = {}
    for file in (SOURCE / "kernels" / backend).glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == file.stem:
                compiled = [ast.unparse(decorator) for decorator in node.decorator_list]
                if not compiled or "kernel" in compiled:
                    found[file.stem] = [argument.arg for argument in node.args.args]
    return found


def test_numba_and_reference_have_the_same_kernels() -> None:
    assert sorted(operations("numba")) == sorted(operations("reference"))


@pytest.mark.parametrize("operation", sorted(operations("numba").keys() & operations("reference")))
def test_numba_and_reference_kernels_have_the_same_arguments(operation: str) -> None:
    assert operations("numba")[operation] == operations("reference")[operation]


def contract() -> dict[str, inspect.Signature]:
    """Return the operations of the contract with their signatures."""
    return {
        name: inspect.signature(member)
        for name, member in vars(Kernels).items()
        if not name.startswith("_") and inspect.isfunction(member)
    }


def backends() -> Iterator[type]:
    """Yield the class of every backend that can be imported here."""
    yield CpuKernels
    if importlib.util.find_spec("torch") and importlib.util.find_spec("triton"):
        yield importlib.import_module("locpmap.kernels.triton.backend").TritonKernels


@pytest.mark.parametrize("operation", contract())
def test_operations_take_the_same_arguments_on_every_backend(operation: str) -> None:
    expected = [(p.name, p.kind, p.default) for p in contract()[operation].parameters.values()]
    for backend in backends():
        signature = inspect.signature(getattr(backend, operation))
        assert [(p.name, p.kind, p.default) for p in signature.parameters.values()] == expected, backend.__name__


def test_backends_are_type_checked_against_the_contract() -> None:
    for package in ("cpu", "triton"):
        assert ": type[Kernels] = " in (SOURCE / "kernels" / package / "backend.py").read_text()


def test_called_operations_are_those_of_the_contract() -> None:
    """Decoders store kernels in an attribute, learning in a variable."""
    files = [*(SOURCE / "inference").glob("*.py"), SOURCE / "learning" / "linear.py"]
    called = {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] in ("kernels", "inner")
    }
    assert {"climb", "site_losses"} <= called
    assert called - {"name", "device", "threads"} <= contract().keys()
    # Every operation of the contract is called.
    assert contract().keys() <= called


def test_inference_seldom_branches_on_the_device() -> None:
    """Devices and array types are handled by the backends."""
    branches = re.compile(r"\bis_tensor\(|\bon_gpu\(|\bif .*kernels\.device\b|kernels\.name ==|ON_GPU")
    found = [line for file in (SOURCE / "inference").glob("*.py") for line in file.read_text().splitlines()]
    assert len([line for line in found if branches.search(line)]) <= 3


# rules


@pytest.mark.parametrize("word", ["pickle", r"torch\.load", "allow_pickle", "yaml", "joblib", r"\beval\(", r"\bexec\("])
def test_no_function_that_executes_loaded_data(word: str) -> None:
    found = [
        f.relative_to(SOURCE)
        for f in SOURCE.rglob("*")
        if f.suffix in (".py", ".toml") and re.search(word, f.read_text())
    ]
    assert not found


@pytest.mark.parametrize(
    "word", ["fastmath", r"parallel=True", r"np\.random\.seed", r"default_rng\(\)", r"\bTODO\b", r"\bFIXME\b"]
)
def test_forbidden_words_are_absent(word: str) -> None:
    assert not [f.relative_to(SOURCE) for f in FILES if re.search(word, f.read_text())]


def test_no_file_is_too_long() -> None:
    long = {str(f.relative_to(SOURCE)): n for f in FILES if (n := len(f.read_text().splitlines())) > MAX_LINES}
    assert not long


def test_every_module_has_a_docstring() -> None:
    assert not [str(f.relative_to(SOURCE)) for f in FILES if not ast.get_docstring(ast.parse(f.read_text()))]
