"""The skeletons for contributors work as they are."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.support.grid_cases import SHAPES, odd_model

FOLDER = Path(__file__).parent.parent / "docs" / "skeletons"


@cache
def load(name: str, file: str) -> ModuleType:
    """Import a skeleton under the name that it will have in the library."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_decoder_passes_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "locpmap.inference.my_method", sys)  # so that the entry is removed afterwards
    load("locpmap.inference.my_method", "my_method.py")
    tests = load("test_my_method", "test_my_method.py")
    for shape in [(1, 1), (1, 7), (5, 3)]:
        tests.test_labels_are_those_of_icm_from_the_unaries(shape)
    tests.test_options_are_checked()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels_agree(shape: tuple[int, int]) -> None:
    reference = load("reference_neighbour_votes", "reference_neighbour_votes.py").neighbour_votes
    compiled = load("numba_neighbour_votes", "numba_neighbour_votes.py").neighbour_votes
    model = odd_model(shape, 3, "weight", 0).model
    n_images, n_sites, _ = model.unary.shape
    labels = np.random.default_rng(0).integers(3, size=(n_images, n_sites))
    expected, found = (np.full(model.unary.shape, 7, np.int64) for _ in range(2))
    reference(model, labels, expected, 0, n_images, 0, n_sites)
    compiled(model, labels, found, 0, n_images, 0, n_sites)
    np.testing.assert_array_equal(found, expected)
    assert (expected.sum(axis=(1, 2)) == 2 * len(model.edges)).all()
