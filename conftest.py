"""Fixtures and order of all tests: a browser, names in doctests, limits on threads; packages may be missing."""

import gc
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

# Before NumPy and torch are loaded: threads that wait for each other slow small fits tenfold and networks fourfold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

OPTIONAL = {
    **dict.fromkeys(("src/locpmap/nn", "paper/src", "paper/tests"), "torch"),
    **dict.fromkeys(("viewer/src", "viewer/tests"), "fastapi"),
    "src/locpmap/kernels/triton": "triton",
    "src/locpmap/estimators": "sklearn",
    "src/locpmap/scale": "dask",
}
collect_ignore_glob = [f"{part}/*" for part, package in OPTIONAL.items() if find_spec(package) is None]


@pytest.fixture(autouse=True, scope="session")
def names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    """Define the two modules that all examples use."""
    import numpy as np

    import locpmap as lp

    doctest_namespace.update(lp=lp, np=np)


@pytest.fixture(autouse=True)
def threads_for_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads divide models of any size, so that small ones test the division."""
    from locpmap.kernels.cpu import dispatch

    monkeypatch.setattr(dispatch, "MIN_SHARED", 0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium through playwright; skip the test if one of them is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def pytest_collection() -> None:
    """Switch the garbage collector off while modules are imported: they stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the collector pass over the modules and tests, whose number makes a full collection take a second."""
    gc.freeze()
    gc.enable()


# Long tests run first, and before tests move between workers, which repeats the set-up of their modules.  Of two
# workers, one starts with DECODING and the other with LEARNING.  They compile different kernels, and each finds those
# of the other in Numba's cache.
DECODING = (
    "tests/triton/test_compiling.py",
    "tests/test_invariants.py",
    "tests/test_contract.py",
    "tests/scale/test_refining.py",
    "tests/test_fields.py",
    "tests/test_messages.py",
    "tests/test_backends.py",
    "tests/test_docs.py",
    "tests/scale/test_damage.py",
    "tests/scale/test_tiles.py",
    "tests/scale/test_workers.py",
    "tests/test_theorem.py",
    "tests/test_refining_fit.py",
    "paper/tests/test_scene_report.py",
    "paper/tests/test_report.py",
    "paper/tests/test_report_browser.py",
)
LEARNING = (
    "tests/test_likelihood_kernels.py",
    "tests/test_learning.py",
    "paper/tests/test_boosting.py",
    "tests/test_processes.py",
    "paper/tests/test_scene_experiment.py",
    "paper/tests/test_experiments.py",
    "paper/tests/test_deep_experiments.py",
    "tests/test_nn.py",
    "tests/test_cli_fit.py",
    "tests/test_examples.py",
)

# Compile Numba kernels, which the tests that run at the same time in .ci/run have compiled by the end.
LAST = ("tests/triton/test_climb_volume.py", "tests/triton/test_refine.py")


@pytest.hookimpl(trylast=True)  # after other tests were deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of `DECODING` first, `LEARNING` in the middle, where the second worker starts, and `LAST` last."""
    decoding, learning = (
        [item for name in names for item in items if item.nodeid.startswith(name)] for names in (DECODING, LEARNING)
    )
    last = [item for item in items if item.nodeid.startswith(LAST)]
    rest = [item for item in items if not item.nodeid.startswith((*DECODING, *LEARNING, *LAST))]
    middle = max(0, len(items) // 2 - len(decoding))
    items[:] = decoding + rest[:middle] + learning + rest[middle:] + last
