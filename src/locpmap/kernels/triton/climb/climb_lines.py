"""Ascent by whole rows and columns of a 4-connected grid with Potts weights: `climb_blocks` without its lists.

Lines of one parity do not touch.  One launch does all sweeps: its programs share the lines of a parity, all samples at
once, and wait for one another before they go on to the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.perturbation import PLAIN, Perturbation
from locpmap.kernels.reference.climb_blocks import ROUNDING
from locpmap.kernels.triton.climb.grid_lines import (
    Kind,
    Lines,
    Near,
    Site,
    best_labels,
    first_change,
    index_bits,
    is_open,
    trace,
)
from locpmap.kernels.triton.climb.potts_grid import images_apart
from locpmap.kernels.triton.grid_barrier import BARRIER, MOST, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.keeping import kept_with
from locpmap.kernels.triton.perturb import begin, perturb

WARP = 32
ITEMS = 32  # samples that a program takes at most
FEW_LABELS = 8
AHEAD, BACK = 4, 8  # sites that are read at once, before their turn comes: there, and on the way back


class Share(NamedTuple):
    """What a program, which is one warp, holds."""

    scores: int  # of a site
    registers: int  # of a thread: the fewer, the more programs


class Climb(NamedTuple):
    """Everything on the device that lines have in common."""

    noisy: Any  # chunks of scores (n, C, S, L, T)
    right: Any
    right_apart: int  # from one image's weights to the next's; 0 where all share them
    down: Any
    down_apart: int
    labels: Any  # (n, S, R), as the next
    turns: Any  # see `Site`
    changed: Any  # (n, R): the last sweep that changed a sample
    stamps: Any  # (n, H + W, R): the last turn in which a row or column changed
    choices: Any  # of the line that each program is at
    height: int
    width: int


FEW, MANY = Share(64, 128), Share(256, 168)
PARTS = {"rows": (0, 2), "columns": (2, 4), "rows+columns": (0, 4)}  # even rows, odd rows, even columns, odd columns


def climb_lines(
    unary: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
    attractive: bool,
    blocks: str,
    perturbation: Perturbation,
    first_image: int,
    first_sample: int,
    start: int,
    given: torch.Tensor,
    row: int,
    column: int,
    full_width: int,
    max_sweeps: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Climb for every image and sample by "rows", "columns" or "rows+columns"; fills ``labels`` (n, S, R).

    Returns the last sweep that changed anything, (n, R).  A sweep over a family reads the perturbed scores
    once, which lie in chunks of as many samples as a program takes.

    ``unary`` (n, S, L) has at most ``MAX_LINE_LABELS`` labels (`locpmap.kernels.block_plan`).  Potts weights are
    ``right`` (1|n, H, W-1) and ``down`` (1|n, H-1, W); none of them is below 0 where they are ``attractive``, which
    saves time.  ``row`` and ``column`` are those of the grid's corner in the whole grid, whose even lines come first.
    """
    n_images, _, n_labels = unary.shape
    n_samples, height, width, device = labels.shape[2], right.shape[1], down.shape[2], unary.device
    window = (row, column, full_width)
    # Cached as long as the weights live, which belong to the potentials where all images share them.
    site_id = kept_with((right, down), ("sites", *window), lambda: _site_ids(height, width, *window, device))
    key = (first_image, first_sample)
    lanes, wide = (1 << (count - 1).bit_length() for count in (n_labels, n_samples))
    share = FEW if lanes <= FEW_LABELS else MANY
    registers = MOST if unary.itemsize > 4 else share.registers
    items = min(wide, ITEMS, max(share.scores // lanes, 1))
    noisy = perturb(unary, site_id, perturbation, *key, n_samples, items)
    begin(unary, noisy, site_id, perturbation, start, given, *key, labels)
    length = max(height, width)
    n_tiles = n_images * ((length + 1) // 2) * -(-n_samples // items)
    n_programs = min(n_tiles, resident_programs(device, registers, warps=1))
    word = torch.int32 if n_labels + 2 * index_bits(n_labels) < 32 else torch.int64
    room = length + AHEAD  # for the choices of a line, and of a blank batch before
    choices = torch.empty((n_programs, room, items), dtype=word, device=device)
    turns = torch.zeros(labels.shape, dtype=torch.uint8, device=device)
    # What `wait_for_all` needs and the last sweep with changes; the last sweep that changed each sample; and the last
    # turn in which each row and column changed.
    sizes = (BARRIER.value + 1, n_images * n_samples, n_images * (height + width) * n_samples)
    counts, changed, stamps = torch.zeros(sum(sizes), dtype=torch.int32, device=device).split(sizes)
    weights = (right, images_apart(right), down, images_apart(down))
    climb = Climb(noisy, *weights, labels, turns, changed, stamps, choices, height, width)
    ties = perturbation.scheme != PLAIN  # which leaves next to none
    rounding = ROUNDING if unary.dtype == torch.float64 else 1e-6
    part = min(WARP // items, lanes)  # a label and sample in every lane
    kind = Kind(bool(attractive), ties, rounding, n_labels, part, items, AHEAD, BACK)
    numbers = (n_images, n_samples, row, column, max_sweeps, *PARTS[blocks], room)
    _climb_lines[(n_programs,)](climb, counts, *numbers, kind, **at_once(registers, warps=1))
    return changed.view(n_images, n_samples)


def _site_ids(height: int, width: int, row: int, column: int, full_width: int, device: torch.device) -> torch.Tensor:
    """Return global site numbers, which key the noise, (S,)."""
    first = row * full_width + column
    rows = torch.arange(first, first + height * full_width, full_width, device=device)
    return (rows[:, None] + torch.arange(width, device=device)).ravel()


@triton.jit(do_not_specialize=["n_images", "n_samples", "row", "column", "max_sweeps", "first_part", "last_part"])
def _climb_lines(
    climb, counts, n_images, n_samples, row, column, max_sweeps, first_part, last_part, room, KIND: tl.constexpr
):
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    choices = climb.choices + program.to(tl.int64) * room * KIND.items
    n_chunks = (n_samples + KIND.items - 1) // KIND.items
    turn, sweep, latest = 1, 1, 0
    while (sweep <= max_sweeps) & (latest >= sweep - 1):
        part = first_part
        while part < last_part:
            if part < 2:
                first, n_lines = (part + row) % 2, climb.height
            else:
                first, n_lines = (part + column) % 2, climb.width
            n_lines = (n_lines - first + 1) // 2
            tile = program
            while tile < n_images * n_lines * n_chunks:
                chunk, item = tile % n_chunks, tile // n_chunks
                line, n = first + 2 * (item % n_lines), (item // n_lines).to(tl.int64)
                before = turn - (last_part - first_part)
                _improve(climb, choices, counts, n_samples, sweep, turn, before, part // 2, n, line, chunk, KIND)
                tile += n_programs
            wait_for_all(counts, turn, n_programs)
            turn += 1
            part += 1
        # A program that went on may have noted the next sweep by now: it saw that this one changed something.
        latest = tl.load(counts + BARRIER, volatile=True)
        sweep += 1


@triton.jit
def _improve(climb, choices, counts, n_samples, sweep, turn, before, family, n, line, chunk, KIND: tl.constexpr):
    """Give a line, whose last turn was ``before``, its best labels in a chunk of samples."""
    ITEMS: tl.constexpr = KIND.items
    height, width, n_chunks = climb.height, climb.width, (n_samples + ITEMS - 1) // ITEMS
    if family == 0:
        lines = Lines(height, width, width, 1, 0, height)
        along, beside = climb.right + n * climb.right_apart, climb.down + n * climb.down_apart
        near = Near(along, width - 1, 1, beside, width, 1)
    else:
        lines = Lines(width, height, 1, width, height, 0)
        along, beside = climb.down + n * climb.down_apart, climb.right + n * climb.right_apart
        near = Near(along, 1, width, beside, 1, width - 1)
    r = chunk * ITEMS + tl.arange(0, ITEMS)[None, :]
    ends, real = climb.changed + n * n_samples + r, r < n_samples
    # A sample that nothing changed in the last sweep has ended.  A line around which nothing changed since its last
    # turn is as good as it was.
    going = tl.load(ends, mask=real, other=-1, cache_modifier=".cg") >= sweep - 1
    stamp = climb.stamps + n * (height + width) * n_samples + r
    if sweep > 1:
        going = is_open(stamp, lines, line, going, before, n_samples)
    if tl.max(going.to(tl.int32)) > 0:
        place = n * height * width + line.to(tl.int64) * lines.line
        chunked = (n * (n_chunks - 1) + chunk) * height * width + place
        cells = tl.arange(0, KIND.part)[:, None] * ITEMS + tl.arange(0, ITEMS)[None, :]
        scores = climb.noisy + chunked * KIND.n_labels * ITEMS + cells
        place = place * n_samples + r
        site = Site(scores, climb.labels + place, climb.turns + place, real)
        earliest = tl.zeros([1, ITEMS], tl.int32)
        if (not KIND.ties) & (sweep > 1):
            earliest = first_change(site, lines, line, going, before, n_samples, KIND)
        better, settled = best_labels(site, near, choices, lines, line, going, earliest, n_samples, KIND)
        better &= going
        if tl.max(better.to(tl.int32)) > 0:
            tl.debug_barrier()  # the choices were stored by other threads
            trace(site, choices, stamp, turn, lines, line, better, settled, n_samples, KIND)
            tl.store(ends, tl.zeros([1, ITEMS], tl.int32) + sweep, mask=better)
            tl.store(counts + BARRIER, sweep)
        tl.debug_barrier()  # before the next line's choices
