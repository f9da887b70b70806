"""Seeds, and the noise itself for those who want to look at it."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.kernels.reference import noise as reference

Key = tuple[int, int]


def key_of(seed: int) -> Key:
    """The Philox key of a seed: its low and high 32 bits."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = None
    if number is None or isinstance(seed, bool):
        raise InputTypeError(f"seed is {seed!r}, expected a whole number from 0 to 2^64 - 1")
    if not 0 <= number < 2**64:
        raise InputError(f"seed is {number}, expected a whole number from 0 to 2^64 - 1")
    return number & 0xFFFFFFFF, number >> 32


def gumbel(seed: int, n_sites: int, n_labels: int, *, sample: int = 0, image: int = 0) -> npt.NDArray[Any]:
    """The plain scheme's standard Gumbel noise of sites 0 to n_sites - 1, shape (n_sites, n_labels).

    >>> gumbel(0, 2, 3).round(3)
    array([[ 0.085,  2.062,  1.181],
           [ 3.57 , -0.016,  1.007]])
    """
    sites = np.arange(whole_number("n_sites", n_sites, 1, 2**31 - 1), dtype=np.int64)
    n_labels = whole_number("n_labels", n_labels, 1, 2**15 - 1)
    sample, image = whole_number("sample", sample, 0, 2**32 - 1), whole_number("image", image, 0, 2**28 - 1)
    return reference.gumbel(key_of(seed), image, sample, sites, n_labels)
