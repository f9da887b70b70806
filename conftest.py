"""Doctests: leave out parts whose package is not installed, define `lp` and `np`; one thread for tiny problems."""

import os
from importlib.util import find_spec
from typing import Any

import pytest

# Before NumPy and torch are loaded: threads that wait for each other slow small fits tenfold and networks fourfold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

OPTIONAL = {
    **dict.fromkeys(("src/locpmap/nn", "paper/src", "paper/tests"), "torch"),
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
