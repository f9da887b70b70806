"""Problems for the steps of a decoder, and the comparison of results."""

from __future__ import annotations

import numpy as np

from locpmap.inference.decoder import Problem
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.potentials import Potentials
from locpmap.result import Result


def problem_of(pot: Potentials, backend: str, n_threads: int = 1) -> Problem:
    """Return a problem with a fixed noise key for a CPU backend."""
    return Problem(pot, CpuKernels(backend, n_threads), (3, 5), first_image=2)


def check_identical(a: Result, b: Result) -> None:
    """Check that labels, log partition, probabilities, status and sweeps of two results are equal bit for bit."""
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(np.asarray(a.log_partition), np.asarray(b.log_partition))
    assert (a.probability is None) or a.probability.tobytes() == b.probability.tobytes()
    assert (a.status, a.n_sweeps) == (b.status, b.n_sweeps)
