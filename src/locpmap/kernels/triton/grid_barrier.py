"""Many sweeps in one launch: its programs all run at once, and a barrier over the grid separates the steps.

So nothing goes back to the host between sweeps, and the device itself sees when there is nothing left to do.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model

WARPS = 4
REGISTERS, MOST = 128, 255  # of a thread: unless a kernel says otherwise, and at most
BARRIER = tl.constexpr(64)  # numbers that `wait_for_all` needs: two lines of a cache

# The notes of a launch over colour classes: what `wait_for_all` needs, the last sweep that changed anything
# (`is_still`), and then where each class begins in the order, and the last one's end.
ARRIVALS, LATEST, BOUNDS = (tl.constexpr(place) for place in (0, BARRIER.value, BARRIER.value + 1))


def at_once(registers: int = REGISTERS, warps: int = WARPS) -> dict[str, Any]:
    """Return the options of a launch of at most :func:`resident_programs` programs: all run at once, or it fails."""
    return {"num_warps": warps, "maxnreg": registers, "launch_cooperative_grid": True}


@cache
def resident_programs(device: torch.device, registers: int = REGISTERS, warps: int = WARPS) -> int:
    """Return how many programs of such a launch run at the same time: in Triton's interpreter one.

    A processor has four parts, each with 2^14 registers for the warps that it holds, given out by eight to a thread.
    Some hold no more than 16 programs.
    """
    if device.type != "cuda":
        return 1
    per_warp = 32 * (-(-registers // 8) * 8)
    per_processor = min(16, 4 * (2**14 // per_warp) // warps)
    return per_processor * torch.cuda.get_device_properties(device).multi_processor_count


def launch_of(model: Model, n_images: int, per_site: int, items: int) -> tuple[tuple[int], torch.Tensor, int]:
    """Return the grid of a launch with `at_once` over the classes of a model, its notes and the number of classes.

    There is a program for every ``items`` items of the largest class, ``per_site`` of which belong to a site of an
    image, or as many as can run at once.  The notes are (BARRIER + 2 + classes,) int32; the host does not wait for
    their copy.
    """
    bounds = model.class_ptr.tolist()
    largest = max(last - first for first, last in pairwise(bounds))
    tiles = n_images * -(-largest * per_site // items)
    device = model.unary.device
    notes = torch.tensor([0] * BOUNDS.value + bounds, dtype=torch.int32).to(device, non_blocking=True)
    return (max(1, min(tiles, resident_programs(device))),), notes, len(bounds) - 1


# Thread 0 counts its program in; the last one says so at another place, where the others look for it, since polling
# where they count would hold up those that come.  Between the program's own barriers, what one thread releases and
# acquires holds for all.
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
    """Wait until ``n_programs`` programs have called this ``turn`` times; all see what each stored before.

    ``barrier_ptr`` points at ``BARRIER`` int32 that were 0 at the launch; turns count from 1.
    """
    tl.debug_barrier()  # the program's own warps
    if n_programs > 1:
        count, word = barrier_ptr.to(tl.int64), (barrier_ptr + BARRIER // 2).to(tl.int64)
        where = [count, word, turn * n_programs - 1, turn]
        tl.inline_asm_elementwise(_MEET, "=r,l,l,r,r", where, tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()


@triton.jit
def is_still(notes, sweep):
    """Return whether nothing was noted at ``LATEST`` in this sweep; asked after all programs have finished it.

    A program that goes on may have noted the next sweep by then: it saw that this one was not still.
    """
    return tl.load(notes + LATEST, volatile=True) < sweep
