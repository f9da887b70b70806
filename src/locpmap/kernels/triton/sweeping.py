"""Many sweeps over colour classes, or until nothing changes, in one launch (see `turns`); and in many launches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.turns import BARRIER, resident_programs

SWEEPS_PER_QUESTION = 8  # a climb on an image takes 5 to 9

# Where a launch's notes are: what `wait_for_all` needs, the last sweep that did anything (`is_still`), and from here on
# where each class begins in the order, and the last one's end.
ARRIVALS, LATEST, BOUNDS = (tl.constexpr(place) for place in (0, BARRIER.value, BARRIER.value + 1))


def launch_of(
    model: Model, n_images: int, per_site: int, begin: int, stop: int, items: int
) -> tuple[tuple[int], torch.Tensor, int]:
    """The grid of a launch with `at_once` over positions begin..stop of the order, and what its programs share.

    There is a program for every ``items`` items of the largest class, ``per_site`` of which belong to a site of an
    image, or as many as can run at once.  The notes are (BARRIER + 2 + classes,) int32; nobody waits until they have
    arrived.  Last comes the number of classes.
    """
    bounds = [begin, *(c for c in model.class_ptr.tolist() if begin < c < stop), stop]
    largest = max(last - first for first, last in pairwise(bounds))
    tiles = n_images * -(-largest * per_site // items)
    device = model.unary.device
    notes = torch.tensor([0] * BOUNDS.value + bounds, dtype=torch.int32).to(device, non_blocking=True)
    return (max(1, min(tiles, resident_programs(device))),), notes, len(bounds) - 1


@triton.jit
def is_still(notes, sweep):
    """Whether nothing was noted at ``LATEST`` in this sweep; asked after all programs have finished it.

    A program that goes on may have noted the next sweep by then: it saw that this one was not still.
    """
    return tl.load(notes + LATEST, volatile=True) < sweep


def sweep_until_still(sweep: Callable[[int], None], changed: torch.Tensor, max_sweeps: int) -> torch.Tensor:
    """Call ``sweep(1)``, ``sweep(2)``, ...; each notes its number in ``changed`` (n, R) where it changed a label.

    Sweeps after the last that changed anything do nothing, so that asking late changes no result.
    """
    for number in range(1, max_sweeps + 1):
        sweep(number)
        if number % SWEEPS_PER_QUESTION == 0 and bool((changed < number).all()):
            break
    return changed
