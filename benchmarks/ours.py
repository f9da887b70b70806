"""locpmap's decoders in the comparisons, called through the public interface."""

from typing import Any

import numpy as np

from benchmarks.peers import Run
from benchmarks.tasks import Task


def decode(task: Task, method: str, **options: Any) -> Run:
    """Return a function from arrays to labels, with probability and variance; validation is part of the time."""
    import locpmap as lp

    def run() -> np.ndarray:
        result = lp.infer(lp.Potentials.grid(task.unary, task.pairwise), method, seed=0, **options)
        if result.probability is not None:
            assert result.variance is not None
        return np.asarray(result.labels)

    return run
