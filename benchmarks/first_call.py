"""Time from the start of a new process to its first result, with compiled kernels in the cache."""

import subprocess
import sys
import time

SCRIPT = """
import sys
import numpy as np
import locpmap as lp
unary = np.random.default_rng(0).normal(size=(64, 64, 4)).astype(np.float32)
result = lp.infer(lp.Potentials.grid(unary, 1.0), "locpmap", n_samples=50, seed=0)
assert result.variance is not None
assert "torch" not in sys.modules, "torch was imported"
"""


def first_call(repeats: int = 3) -> float:
    """Return the seconds of the fastest of ``repeats`` processes, after one that fills the cache."""
    return min([_seconds() for _ in range(1 + repeats)][1:])


def _seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
    return time.perf_counter() - start
