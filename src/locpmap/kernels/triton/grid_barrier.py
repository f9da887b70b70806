"""Many sweeps in one launch: all programs are resident at the same time, and a grid-wide barrier separates the steps.

The host takes no part between sweeps: the device itself detects convergence and stops.
"""

from functools import cache
from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model

WARPS = 4
REGISTERS, MOST = 128, 255  # per thread: the default and the hardware's limit
BARRIER = tl.constexpr(64)  # int32 words that `wait_for_all` needs: two cache lines

# Layout of the `notes` array of a launch over colour classes: the words of `wait_for_all`, the last sweep that changed
# anything (`is_still`), the first position of each class in the order, and the last class's end.
ARRIVALS, LATEST, BOUNDS = (tl.constexpr(place) for place in (0, BARRIER.value, BARRIER.value + 1))


def at_once(registers: int = REGISTERS, warps: int = WARPS) -> dict[str, Any]:
    """Return launch options for up to :func:`resident_programs` programs; the launch fails unless all are resident."""
    return {"num_warps": warps, "maxnreg": registers, "launch_cooperative_grid": True}


@cache
def resident_programs(device: torch.device, registers: int = REGISTERS, warps: int = WARPS) -> int:
    """Return how many programs of a launch with `at_once` are resident at the same time: 1 in Triton's interpreter.

    A multiprocessor has four partitions with 2^14 registers each, allocated to warps in units of eight per thread.
    Some GPUs hold at most 16 programs per multiprocessor.
    """
    if device.type != "cuda":
        return 1
    per_warp = 32 * (-(-registers // 8) * 8)
    per_processor = min(16, 4 * (2**14 // per_warp) // warps)
    return per_processor * torch.cuda.get_device_properties(device).multi_processor_count


def launch_of(model: Model, n_images: int, per_site: int, items: int) -> tuple[tuple[int], torch.Tensor, int]:
    """Return the grid of a launch with `at_once` over a model's colour classes, its notes and the number of classes.

    The grid has one program per ``items`` items of the largest class, limited to the programs that can be resident.
    A site of an image has ``per_site`` items.  The notes are (BARRIER + 2 + classes,) int32, copied asynchronously.
    """
    bounds = model.class_ptr.tolist()
    largest = max(last - first for first, last in pairwise(bounds))
    tiles = n_images * -(-largest * per_site // items)
    device = model.unary.device
    notes = torch.tensor([0] * BOUNDS.value + bounds, dtype=torch.int32).to(device, non_blocking=True)
    return (max(1, min(tiles, resident_programs(device))),), notes, len(bounds) - 1


# Thread 0 increments an arrival counter.  The last program to arrive writes the turn to a second address, which the
# others poll: polling the counter itself would slow down the increments.  The program's own barriers before and after
# extend thread 0's release and acquire to all of its threads.
_MEET = tl.constexpr("""{
.reg .pred other, early;
.reg .s32 thread, before, seen;
mov.u32 thread, %tid.x;
setp.ne.s32 other, thread, 0;
@other bra met;
atom.add.acq_rel.gpu.global.s32 before, [$1], 1;
setp.ne.s32 early, before, $3;
@early bra look;
st.release.gpu.global.s32 [$2], $4;
bra met;
look:
ld.relaxed.gpu.global.s32 seen, [$2];
setp.lt.s32 early, seen, $4;
@early bra look;
fence.acq_rel.gpu;
met:
mov.s32 $0, 0;
}""")


@triton.jit
def wait_for_all(barrier_ptr, turn, n_programs):
    """Wait until all ``n_programs`` programs have called this ``turn`` times; earlier stores are then visible to all.

    ``barrier_ptr`` points to ``BARRIER`` int32 that were 0 at the launch.  ``turn`` counts the calls, from 1.
    """
    tl.debug_barrier()  # the program's own warps
    if n_programs > 1:
        count, word = barrier_ptr.to(tl.int64), (barrier_ptr + BARRIER // 2).to(tl.int64)
        where = [count, word, turn * n_programs - 1, turn]
        tl.inline_asm_elementwise(_MEET, "=r,l,l,r,r", where, tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()


@triton.jit
def is_still(notes, sweep):
    """Return whether this sweep changed nothing.  Call it after the last barrier of the sweep.

    ``LATEST`` holds the last sweep with a change.  A faster program may already have recorded the next sweep.  The
    result is the same, since that program continued only because this sweep changed something.
    """
    return tl.load(notes + LATEST, volatile=True) < sweep
