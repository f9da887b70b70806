"""Our side of every comparison, through the public interface alone."""

from typing import Any

import numpy as np

from benchmarks.peers import Run
from benchmarks.tasks import Task


def decode(task: Task, method: str, **options: Any) -> Run:
    """From the arrays to labels, probability and variance; validation of the input is inside the clock."""
    import locpmap as lp

    def run() -> np.ndarray:
        result = lp.infer(lp.Potentials.grid(task.unary, task.pairwise), method, seed=0, **options)
        if result.probability is not None:
            assert result.variance is not None
        return np.asarray(result.labels)

    return run
