"""Many sweeps in one launch: its programs all run at once, and wait for one another between steps.

So nothing goes back to the host between sweeps, and the device itself sees when there is nothing left to do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

WARPS = 4
REGISTERS = 128  # of a thread, unless a kernel says otherwise


def at_once(registers: int = REGISTERS) -> dict[str, Any]:
    """Options of a launch of at most :func:`resident_programs` programs: they all run at once, or the launch fails."""
    return {"num_warps": WARPS, "maxnreg": registers, "launch_cooperative_grid": True}


@cache
def resident_programs(device: torch.device, registers: int = REGISTERS) -> int:
    """How many programs of such a launch run at the same time; Triton's interpreter runs just one.

    A processor has 2^16 registers for all the threads that it holds.
    """
    if device.type != "cuda":
        return 1
    return 2**16 // (32 * WARPS * registers) * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def wait_for_all(arrivals_ptr, turn, n_programs):
    """Wait until ``n_programs`` programs have called this ``turn`` times; all see what each stored before.

    ``arrivals_ptr`` points at an int32 that was 0 at the launch; turns count from 1.
    """
    tl.debug_barrier()  # the program's own warps
    if n_programs > 1:
        tl.atomic_add(arrivals_ptr, 1, sem="release", scope="gpu")
        while tl.load(arrivals_ptr, volatile=True) < turn * n_programs:
            pass
        tl.atomic_add(arrivals_ptr, 0, sem="acquire", scope="gpu")  # what was stored elsewhere is not cached here now
        tl.debug_barrier()
