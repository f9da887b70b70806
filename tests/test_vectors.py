"""Vectors of eight numbers against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.kernels.numba import vectors as v
from locpmap.kernels.numba.compiling import kernel


@kernel
def operate(x: Any, y: Any, table: Any, labels: Any, kept: Any, out: Any, wide: Any) -> Any:
    """Write the results of the operations on floats into rows of eight, from the second element of each array on."""
    a, b, c = v.load_floats(x, 1), v.load_floats(y, 1), v.load_ints(labels, 1)
    v.store(out, 0, a + b)
    v.store(out, 8, a - b)
    v.store(out, 16, a * b)
    v.store(out, 24, v.select(a < b, a, v.floats(7)))
    v.store(out, 32, v.gather(table, (c >> v.ints(1)) & v.ints(3)))
    v.store(out, 40, v.rounded(a))
    v.store(out, 48, v.times_power_of_two(b, v.rounded(a)))
    d = v.to_doubles(c)
    d += v.load_doubles(wide, 1)
    v.store(wide, 1, d / v.doubles(4))
    v.store(labels, 1, v.select(v.as_flags(kept), c, c + v.ints(257)))
    return v.as_bits(a >= b), v.as_bits(c == v.ints(3)), v.as_bits(c != v.ints(3)), v.as_bits(a > b), v.total(d)


def test_operations() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 5, 9).astype(np.float32), rng.uniform(1, 2, 9).astype(np.float32)
    table, wide = rng.random(4, np.float32), rng.random(9)
    x[4] = y[4]
    labels, out, kept = np.array([9, 3, 255, 0, 3, 7, 6, 1, 3], np.uint8), np.zeros(56, np.float32), 0b10010110
    a, b, c = x[1:], y[1:], labels[1:].astype(int)
    results, doubles = wide[1:] + c, wide.copy()
    at_least, equal, other, above, total = operate(x, y, table, labels, np.uint8(kept), out, doubles)
    expected = [a + b, a - b, a * b, np.where(a < b, a, 7), table[c >> 1 & 3], np.rint(a), b * 2 ** np.rint(a)]
    np.testing.assert_allclose(out.reshape(7, 8), expected, rtol=1e-6)
    np.testing.assert_array_equal(doubles, np.append(wide[:1], results / 4))
    np.testing.assert_allclose(total, results.sum(), rtol=1e-14)
    for found, flags in ((at_least, a >= b), (equal, c == 3), (other, c != 3), (above, a > b)):
        assert found == np.packbits(flags, bitorder="little")[0]
    kept_lanes = np.unpackbits(np.uint8(kept), bitorder="little").astype(bool)
    np.testing.assert_array_equal(labels, np.append(9, np.where(kept_lanes, c, (c + 257) & 255)))
