"""Ascent by whole rows and columns of a 4-connected grid with Potts weights: `climb_blocks` without its lists.

Lines of one parity do not touch.  One launch does all sweeps: its programs share the lines of a parity, all samples at
once, and wait for one another before they go on to the next.  The first times, lines are worked through from end to
end, and later on where something has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.perturbation import PLAIN, Perturbation
from locpmap.kernels.reference.climb_blocks import ROUNDING
from locpmap.kernels.triton.grid_lines import Lines, Near, Site, best_labels, index_bits, is_open, trace
from locpmap.kernels.triton.keeping import kept_with
from locpmap.kernels.triton.line_parts import SITES, Notes, best_labels_in_parts, find_parts, trace_parts
from locpmap.kernels.triton.perturb import begin, perturb
from locpmap.kernels.triton.potts_grid import images_apart
from locpmap.kernels.triton.turns import BARRIER, MOST, at_once, resident_programs, wait_for_all

WARP = 32
ITEMS = 32  # samples that a program takes at most
FEW_LABELS = 8
# Lines of more sites and labels than this are worked through in parts: where labels are few, a program takes so many
# samples that one or the other changes nearly everywhere.
LONG, MANY_LABELS = 64, 4
AHEAD, BACK = 4, 8  # sites that are read at once, before their turn comes: there, and on the way back
STEP = 2  # the same in parts of lines, which are short; twice as many take twice as long to compile


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
    walls: Any  # (2, n, S, R): of rows, of columns
    changed: Any  # (n, R): the last sweep that changed a sample
    stamps: Any  # (n, H + W, R): the last turn in which a row or column changed
    height: int
    width: int


FEW, MANY = Share(64, 128), Share(256, 168)
FOR_PARTS = 144  # registers at least where lines are worked through in parts
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

    Args:
        unary: (n, S, L) with at most ``MAX_LINE_LABELS`` labels (`locpmap.kernels.block_plan`).
        right: Potts weights (1|n, H, W-1).
        down: (1|n, H-1, W).
        attractive: That no weight is below 0, which saves time.
        blocks: The lines.
        perturbation: Of the sites.
        first_image: The number of the first image in the noise's keys.
        first_sample: The same of samples.
        start: Where climbs begin.
        given: Labels (n, S) for those that begin there.
        row: The row of the grid's corner in the whole grid, whose even lines come first.
        column: The corner's column.
        full_width: The width of the whole grid.
        max_sweeps: Where climbs end at the latest.
        labels: The result.
    """
    n_images, _, n_labels = unary.shape
    n_samples, height, width, device = labels.shape[2], right.shape[1], down.shape[2], unary.device
    window = (row, column, full_width)
    # Kept as long as the weights are, which belong to the potentials where all images share them.
    site_id = kept_with((right, down), ("sites", *window), lambda: _site_ids(height, width, *window, device))
    key = (first_image, first_sample)
    lanes, wide = (1 << (count - 1).bit_length() for count in (n_labels, n_samples))
    share = FEW if lanes <= FEW_LABELS else MANY
    length = max(height, width)
    # Where scores may tie, a line that is improved takes the smallest labels everywhere.
    by_parts = perturbation.scheme == PLAIN and length > LONG and n_labels > MANY_LABELS
    registers = MOST if unary.itemsize > 4 else max(share.registers, FOR_PARTS if by_parts else 0)
    items = min(wide, ITEMS, max(share.scores // lanes, 1))
    noisy = perturb(unary, site_id, perturbation, *key, n_samples, items)
    begin(unary, noisy, site_id, perturbation, start, given, *key, labels)
    n_tiles = n_images * ((length + 1) // 2) * -(-n_samples // items)
    n_programs = min(n_tiles, resident_programs(device, registers, warps=1))
    word = torch.int32 if n_labels + 2 * index_bits(n_labels) < 32 else torch.int64
    room = length + AHEAD  # for the choices of a line, and of a blank batch before
    choices = torch.empty((n_programs, room, items), dtype=word, device=device)
    n_words = -(-length // SITES.value) + 2 if by_parts else 0
    words, following = (
        torch.empty((n_programs, n_words, items), dtype=dtype, device=device) for dtype in (torch.uint32, torch.int32)
    )
    n_runs = length // 2 + 1 if by_parts else 0
    runs = torch.empty((n_programs, n_runs, items), dtype=torch.int64, device=device)
    noted = labels.shape if by_parts else (0,)
    turns = torch.zeros(noted, dtype=torch.uint8, device=device)
    walls = torch.empty((2, *noted), dtype=torch.uint8, device=device)
    # What `wait_for_all` needs and the last sweep with changes; the last sweep that changed each sample; and the last
    # turn in which each row and column changed.
    sizes = (BARRIER.value + 1, n_images * n_samples, n_images * (height + width) * n_samples)
    counts, changed, stamps = torch.zeros(sum(sizes), dtype=torch.int32, device=device).split(sizes)
    climb = Climb(
        *(noisy, right, images_apart(right), down, images_apart(down), labels, turns, walls, changed, stamps),
        *(height, width),
    )
    _climb_lines[(n_programs,)](
        *(climb, choices, Notes(words, following, runs), counts, n_images, n_samples, row, column, max_sweeps),
        *(*PARTS[blocks], room, n_words, n_runs),
        ATTRACTIVE=attractive,
        TIES=perturbation.scheme != PLAIN,  # which leaves next to none
        BY_PARTS=by_parts,
        ROUNDING=ROUNDING if unary.dtype == torch.float64 else 1e-6,
        N_LABELS=n_labels,
        PART=min(WARP // items, lanes),  # a label and sample in every lane
        ITEMS=items,
        AHEAD=AHEAD,
        BACK=BACK,
        STEP=STEP,
        **at_once(registers, warps=1),
    )
    return changed.view(n_images, n_samples)


def _site_ids(height: int, width: int, row: int, column: int, full_width: int, device: torch.device) -> torch.Tensor:
    """Global site numbers, which key the noise, (S,)."""
    first = row * full_width + column
    rows = torch.arange(first, first + height * full_width, full_width, device=device)
    return (rows[:, None] + torch.arange(width, device=device)).ravel()


@triton.jit(do_not_specialize=["n_images", "n_samples", "row", "column", "max_sweeps", "first_part", "last_part"])
def _climb_lines(
    climb,
    choices,
    notes,
    counts,
    n_images,
    n_samples,
    row,
    column,
    max_sweeps,
    first_part,
    last_part,
    room,
    n_words,
    n_runs,
    ATTRACTIVE: tl.constexpr,
    TIES: tl.constexpr,
    BY_PARTS: tl.constexpr,
    ROUNDING: tl.constexpr,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
    BACK: tl.constexpr,
    STEP: tl.constexpr,
):
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    choices += program.to(tl.int64) * room * ITEMS
    own_words, own_runs = program.to(tl.int64) * n_words * ITEMS, program.to(tl.int64) * n_runs * ITEMS
    notes = Notes(notes.words + own_words, notes.following + own_words, notes.runs + own_runs)
    n_chunks = (n_samples + ITEMS - 1) // ITEMS
    turn, sweep, latest = 1, 1, 0
    while (sweep <= max_sweeps) & (latest >= sweep - 1):
        part = first_part
        while part < last_part:
            if part < 2:
                first, n_lines = (part + row) % 2, climb.height
            else:
                first, n_lines = (part + column) % 2, climb.width
            n_lines = (n_lines - first + 1) // 2
            # For speed: to the lines that come first nearly all is new twice, to others once.
            whole = True
            if BY_PARTS:
                whole = (sweep == 1) | ((sweep == 2) & (part == first_part))
            tile = program
            while tile < n_images * n_lines * n_chunks:
                chunk, item = tile % n_chunks, tile // n_chunks
                line, n = first + 2 * (item % n_lines), (item // n_lines).to(tl.int64)
                before = turn - (last_part - first_part)
                if whole:
                    _improve(
                        *(climb, choices, notes, counts + BARRIER, n_images, n_samples, sweep, turn, before, part // 2),
                        *(n, line, chunk, True, ATTRACTIVE, TIES, BY_PARTS, ROUNDING),
                        *(N_LABELS, PART, ITEMS, AHEAD, BACK),
                    )
                else:
                    _improve_parts(
                        *(climb, choices, notes, counts + BARRIER, n_images, n_samples, sweep, turn, before, part // 2),
                        *(n, line, chunk, ATTRACTIVE, ROUNDING, N_LABELS, PART, ITEMS, STEP),
                    )
                tile += n_programs
            wait_for_all(counts, turn, n_programs)
            turn += 1
            part += 1
        # A program that went on may have noted the next sweep by now: it saw that this one changed something.
        latest = tl.load(counts + BARRIER, volatile=True)
        sweep += 1


@triton.jit
def _improve(
    climb,
    choices,
    notes,
    latest_ptr,
    n_images,
    n_samples,
    sweep,
    turn,
    before,
    family,
    n,
    line,
    chunk,
    WHOLE: tl.constexpr,
    ATTRACTIVE: tl.constexpr,
    TIES: tl.constexpr,
    NOTES: tl.constexpr,
    ROUNDING: tl.constexpr,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
    BACK: tl.constexpr,
):
    """Give a line its best labels in a chunk of samples, by looking at the ``WHOLE`` of it or where it may change.

    Its last turn was ``before``.
    """
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
        cells = tl.arange(0, PART)[:, None] * ITEMS + tl.arange(0, ITEMS)[None, :]
        scores = climb.noisy + chunked * N_LABELS * ITEMS + cells
        place = place * n_samples + r
        walls = climb.walls + place + family * n_images.to(tl.int64) * height * width * n_samples
        site = Site(scores, climb.labels + place, climb.turns + place, walls, real)
        if WHOLE:
            better = going & best_labels(
                *(site, near, choices, lines, line, n_samples),
                *(ATTRACTIVE, TIES, NOTES, ROUNDING, N_LABELS, PART, ITEMS, AHEAD),
            )
        else:
            find_parts(site, notes, lines, line, going, before, n_samples, ITEMS)
            tl.debug_barrier()  # what was noted was stored by other threads, here and below
            better, n_runs = best_labels_in_parts(
                *(site, near, choices, notes, lines, line, n_samples),
                *(ATTRACTIVE, ROUNDING, N_LABELS, PART, ITEMS, AHEAD),
            )
            better &= going
        if tl.max(better.to(tl.int32)) > 0:
            tl.debug_barrier()
            if WHOLE:
                trace(site, choices, stamp, turn, lines, line, better, n_samples, NOTES, N_LABELS, ITEMS, BACK)
            else:
                trace_parts(
                    *(site, choices, notes, n_runs, stamp, turn, lines, line, better, n_samples),
                    *(N_LABELS, ITEMS, BACK),
                )
            tl.store(ends, tl.zeros([1, ITEMS], tl.int32) + sweep, mask=better)
            tl.store(latest_ptr, sweep)
        tl.debug_barrier()  # before the next line's notes


@triton.jit(noinline=True)
def _improve_parts(
    climb,
    choices,
    notes,
    latest_ptr,
    n_images,
    n_samples,
    sweep,
    turn,
    before,
    family,
    n,
    line,
    chunk,
    ATTRACTIVE: tl.constexpr,
    ROUNDING: tl.constexpr,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
    STEP: tl.constexpr,
):
    """As `_improve`, in parts: not inlined, which would take the registers of whole lines."""
    _improve(
        *(climb, choices, notes, latest_ptr, n_images, n_samples, sweep, turn, before, family, n, line, chunk),
        # Neither whole nor with ties, but with notes.
        *(False, ATTRACTIVE, False, True, ROUNDING, N_LABELS, PART, ITEMS, STEP, STEP),
    )
