"""My method, compared with a closed form.  Copy to ``tests/test_my_method.py``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import locpmap as lp
from locpmap.inference.my_method import MyMethod


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 3)])
def test_probabilities_are_the_softmax_of_the_unaries(shape: tuple[int, int]) -> None:
    unary = np.random.default_rng(0).normal(size=(*shape, 3))
    result = lp.infer(lp.Potentials.grid(unary, 1.0), MyMethod())
    np.testing.assert_allclose(result.probability, softmax(unary, axis=2), rtol=1e-12)


def test_options_are_checked() -> None:
    with pytest.raises(lp.InputError, match="max_sweeps is 0, expected a whole number of at least 1"):
        MyMethod(max_sweeps=0)
