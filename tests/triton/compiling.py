"""Compile the kernels of every operation for an H200 without one: `python -m tests.triton.compiling`.

Triton's interpreter forgives what its compiler does not.  Launches do nothing, in a process of their own: what was
compiled here must not be launched later.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from tests.triton import test_operators
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver

from locpmap.kernels.perturbation import PLAIN, RANDOM, Perturbation
from locpmap.kernels.triton import climb_lines, operators
from locpmap.kernels.triton.climb_potts import climb_potts

SHAPE = (climb_lines.LONG + 1, 3)  # a column is worked through in parts


class NoGPU:
    """What Triton asks a driver before it launches."""

    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))


def main() -> int:
    """Compile, and say what does not."""
    driver.set_active(NoGPU())
    CompiledKernel._init_handles = lambda kernel: None
    CompiledKernel.launch_metadata = lambda kernel, *given: None
    CompiledKernel.run = property(lambda kernel: lambda *given: None)
    failed = 0
    for name, kernel, given in (*every_operation(), *common()):
        try:
            kernel(*given)
        except Exception as error:
            failed += 1
            sys.stderr.write(f"{name}: {''.join(traceback.format_exception(error))[-2000:]}\n")
    return failed


def every_operation() -> Iterator[tuple[str, Any, Any]]:
    """Each once, for a small model in double precision."""
    for name, given in test_operators.calls().items():
        yield name, operators._kernel(name), given


def common() -> Iterator[tuple[str, Any, Any]]:
    """What most people run, in single precision: single sites with two labels, rows and columns with more."""
    height, width = SHAPE
    right, down = torch.ones(1, height, width - 1), torch.ones(1, height - 1, width)
    labels, none = torch.zeros(1, height * width, 8, dtype=torch.uint8), torch.zeros(0, 0, dtype=torch.int64)
    start = (RANDOM, none, 0, 0, width, 9, labels)
    two, more = (torch.zeros(1, height * width, n_labels) for n_labels in (2, climb_lines.MANY_LABELS + 1))
    yield "climb_potts, two labels", climb_potts, (two, right, down, 1.0, 1, 2, 0, 0, *start)
    lines = (True, "rows+columns", Perturbation(PLAIN, 1.0, 1, 2), 0, 0)
    yield "climb_lines in parts", climb_lines.climb_lines, (more, right, down, *lines, *start)


if __name__ == "__main__":
    raise SystemExit(main())
