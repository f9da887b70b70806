"""Tiled inference on a GPU: equal to inference on the whole raster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import DEVICE

import locpmap as lp

dask = pytest.importorskip("dask")

CASES: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "two labels": (2, 1.5, {}),
    "three labels, conditional": (3, 1.5, {"probability": "conditional"}),
    "a table": (2, np.array([[1.0, -0.5], [0.2, 1.2]]), {}),
    "parts of rows": (2, 1.5, {"blocks": "rows:3"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_tiles_equal_the_whole(case: str) -> None:
    n_labels, pairwise, options = CASES[case]
    unary = 0.5 * np.random.default_rng(0).normal(size=(4, 7, n_labels)).astype(np.float32)
    how: dict[str, Any] = {"backend": "triton", "device": DEVICE, "max_sweeps": 1, "n_samples": 4, "seed": 3, **options}
    whole = lp.infer(lp.Potentials.grid(unary, pairwise), **how)
    tiled = lp.infer_tiled(unary, pairwise, tile=(4, 4), **how)
    labels, probability = dask.compute(tiled.labels, tiled.probability, scheduler="synchronous")
    np.testing.assert_array_equal(labels, whole.labels)
    np.testing.assert_array_equal(probability, whole.probability)
