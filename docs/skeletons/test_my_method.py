"""My method, compared with ICM.  Copy to ``tests/test_my_method.py``."""

from __future__ import annotations

import numpy as np
import pytest

import locpmap as lp
from locpmap.inference.my_method import MyMethod


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 3)])
def test_labels_are_those_of_icm_from_the_unaries(shape: tuple[int, int]) -> None:
    potentials = lp.Potentials.grid(np.random.default_rng(0).normal(size=(*shape, 3)), 1.0)
    expected = lp.infer(potentials, "icm", start="unary")
    np.testing.assert_array_equal(lp.infer(potentials, MyMethod()).labels, expected.labels)


def test_options_are_checked() -> None:
    with pytest.raises(lp.InputError, match="max_sweeps is 0, expected a whole number of at least 1"):
        MyMethod(max_sweeps=0)
