"""Ascent by whole rows and columns of a 4-connected grid with Potts weights: `climb_blocks` without neighbour lists.

Lines (rows or columns) of equal parity do not touch.  One launch performs all sweeps: programs share the lines of a
parity, in all samples, and a barrier separates the parities.  The first sweeps update whole lines.  Later sweeps update
only the parts of long lines that a change can reach (`line_parts`).  A turn is one parity of rows or columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Array, GridWindow
from locpmap.kernels.perturbation import PLAIN
from locpmap.kernels.reference.climb_blocks import ROUNDING
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.cache import cached
from locpmap.kernels.triton.climb.grid_lines import (
    Kind,
    Line,
    Near,
    Notes,
    Site,
    best_labels,
    has_changed,
    index_bits,
    trace,
)
from locpmap.kernels.triton.climb.line_parts import SITES, best_labels_in_parts, find_parts, trace_parts
from locpmap.kernels.triton.climb.potts_grid import images_apart
from locpmap.kernels.triton.grid_barrier import BARRIER, MOST, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.perturb import begin, perturb

WARP = 32
ITEMS = 32  # limit of the samples that a program processes together
FEW_LABELS = 8
# Lines with more sites and labels than this are updated in parts.  With few labels a program processes so many samples
# that nearly every site changes in one of them.
LONG, MANY_LABELS = 64, 4
AHEAD, BACK = 4, 8  # sites loaded together, ahead of their use: in the backward pass, in the traceback
STEP = 2  # the same in parts of lines, which are short; 4 would double the compile time


class Share(NamedTuple):
    """The resources of a program, which is one warp."""

    scores: int  # scores of a site held by the program
    registers: int  # per thread: fewer registers allow more programs


class Room(NamedTuple):
    """The sizes of a program's `Notes`, in units of ITEMS numbers."""

    choices: int
    words: int
    runs: int


class State(NamedTuple):
    """The device arrays and sizes common to all lines."""

    noisy: Any  # chunks of scores (n, C, S, L, T)
    right: Any
    right_apart: int  # stride between images; 0 if all images share the weights
    down: Any
    down_apart: int
    labels: Any  # (n, S, R)
    turns: Any  # (n, S, R), see `Site`
    walls: Any  # (2, n, S, R): of rows, of columns (defined in `grid_lines`)
    changed: Any  # (n, R): the last sweep that changed each sample
    stamps: Any  # (n, H + W, R): the last turn that changed each row or column
    height: int
    width: int
    room: Room


class Kinds(NamedTuple):
    """The compile-time constants of a launch."""

    of_lines: Kind  # for updates of whole lines
    of_parts: Kind  # for updates of parts of lines


class Now(NamedTuple):
    """The position in the climb; each parity of rows or columns is one turn of a sweep."""

    sweep: Any
    turn: Any
    before: Any  # the turn of the same lines in the previous sweep
    latest: Any  # address of the last sweep that changed anything


FEW, MANY = Share(64, 128), Share(256, 168)
FOR_PARTS = 144  # minimum number of registers where lines are updated in parts
PARTS = {"rows": (0, 2), "columns": (2, 4), "rows+columns": (0, 4)}  # even rows, odd rows, even columns, odd columns


def climb_lines(
    unary: Array, right: Array, down: Array, attractive: bool, grid: GridWindow, climb: Climb, span: Span, labels: Array
) -> Array:
    """Climb for every image and sample by "rows", "columns" or "rows+columns"; fill ``labels`` (n, S, R).

    Return the number of the last sweep that changed a label, (n, R), counted from 1; 0 if there is none.  A sweep over
    rows or columns reads the perturbed scores once.  The perturbed scores are stored in chunks; one chunk holds the
    samples that one Triton program processes together.

    ``unary`` (n, S, L) has at most ``MAX_LINE_LABELS`` labels (`locpmap.kernels.block_plan`).  Potts weights are
    ``right`` (1|n, H, W-1) and ``down`` (1|n, H-1, W).  ``attractive`` declares that none is negative, which saves
    time.  Even lines of the whole grid are updated first.
    """
    n_images, _, n_labels = unary.shape
    assert climb.blocks is not None
    n_samples, height, width, device = labels.shape[2], grid.height, grid.width, unary.device
    perturbation = climb.perturbation
    # Cached while the weights exist; the potentials hold them where all images share them.
    site_id = cached((right, down), ("sites", grid), lambda: _site_ids(grid, device))
    lanes, wide = (1 << (count - 1).bit_length() for count in (n_labels, n_samples))
    share = FEW if lanes <= FEW_LABELS else MANY
    length = max(height, width)
    ties = perturbation.scheme != PLAIN  # plain noise leaves almost no ties
    # Where scores may tie, an improved line must take the smallest of the best labels at all its sites.
    by_parts = not ties and length > LONG and n_labels > MANY_LABELS
    registers = MOST if unary.itemsize > 4 else max(share.registers, FOR_PARTS if by_parts else 0)
    items = min(wide, ITEMS, max(share.scores // lanes, 1))
    noisy = perturb(unary, site_id, perturbation, climb.first_image, span, items)
    begin(unary, noisy, site_id, climb, span, labels)
    n_tiles = n_images * ((length + 1) // 2) * -(-n_samples // items)
    n_programs = min(n_tiles, resident_programs(device, registers, warps=1))
    room = Room(
        length + AHEAD,  # a line and the blank first batch
        -(-length // SITES.value) + 2 if by_parts else 0,
        length // 2 + 1 if by_parts else 0,
    )
    word = torch.int32 if n_labels + 2 * index_bits(n_labels) < 32 else torch.int64
    sizes = ((room.choices, word), (room.words, torch.uint32), (room.words, torch.int32), (room.runs, torch.int64))
    notes = Notes(*(torch.empty((n_programs, size, items), dtype=dtype, device=device) for size, dtype in sizes))
    noted = labels.shape if by_parts else (0,)
    turns = torch.zeros(noted, dtype=torch.uint8, device=device)
    walls = torch.empty((2, *noted), dtype=torch.uint8, device=device)
    # The words of `wait_for_all` and the last sweep with changes; the last sweep that changed each sample; the last
    # turn that changed each row and column.
    parts = (BARRIER.value + 1, n_images * n_samples, n_images * (height + width) * n_samples)
    counts, changed, stamps = torch.zeros(sum(parts), dtype=torch.int32, device=device).split(parts)
    weights = (right, images_apart(right), down, images_apart(down))
    state = State(noisy, *weights, labels, turns, walls, changed, stamps, height, width, room)
    rounding = ROUNDING if unary.dtype == torch.float64 else 1e-6
    part = min(WARP // items, lanes)  # one label and sample per lane
    kind = Kind(bool(attractive), ties, by_parts, True, rounding, n_labels, part, items, AHEAD, BACK)
    kinds = Kinds(kind, kind._replace(whole=False, ahead=STEP, back=STEP))
    numbers = (n_images, n_samples, grid.row, grid.column, climb.max_sweeps, *PARTS[climb.blocks.named])
    _climb_lines[(n_programs,)](state, notes, counts, *numbers, kinds, **at_once(registers, warps=1))
    return changed.view(n_images, n_samples)


def _site_ids(grid: GridWindow, device: torch.device) -> Array:
    """Return site numbers in the whole image, the keys of the noise, (S,)."""
    first = grid.row * grid.whole_width + grid.column
    rows = torch.arange(first, first + grid.height * grid.whole_width, grid.whole_width, device=device)
    return (rows[:, None] + torch.arange(grid.width, device=device)).ravel()


@triton.jit(do_not_specialize=["n_images", "n_samples", "row", "column", "max_sweeps", "first_part", "last_part"])
def _climb_lines(
    climb, notes, counts, n_images, n_samples, row, column, max_sweeps, first_part, last_part, KINDS: tl.constexpr
):
    KIND: tl.constexpr = KINDS.of_lines
    IN_PARTS: tl.constexpr = KINDS.of_parts
    room = climb.room
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    own = program.to(tl.int64)
    choices, words = notes.choices + own * room.choices * KIND.items, own * room.words * KIND.items
    runs = notes.runs + own * room.runs * KIND.items
    notes = Notes(choices, notes.words + words, notes.following + words, runs)
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
            # Whole lines are faster while nearly all sites change: twice for the first turn's lines, once for others.
            whole = True
            if KIND.by_parts:
                whole = (sweep == 1) | ((sweep == 2) & (part == first_part))
            tile = program
            while tile < n_images * n_lines * n_chunks:
                chunk, item = tile % n_chunks, tile // n_chunks
                line, n = first + 2 * (item % n_lines), (item // n_lines).to(tl.int64)
                now = Now(sweep, turn, turn - (last_part - first_part), counts + BARRIER)
                if whole:
                    _improve(climb, notes, n_images, n_samples, now, part // 2, n, line, chunk, KIND)
                else:
                    _improve_parts(climb, notes, n_images, n_samples, now, part // 2, n, line, chunk, IN_PARTS)
                tile += n_programs
            wait_for_all(counts, turn, n_programs)
            turn += 1
            part += 1
        # Another program may already have stored the next sweep here.  It began that sweep because this sweep changed a
        # label, so the loop continues in either case.
        latest = tl.load(counts + BARRIER, volatile=True)
        sweep += 1


@triton.jit
def _improve(climb, notes, n_images, n_samples, now, family, n, number, chunk, KIND: tl.constexpr):
    """Set the best labels of a line in a chunk of samples: of the whole line, or of the parts that may change."""
    ITEMS: tl.constexpr = KIND.items
    height, width, n_chunks = climb.height, climb.width, (n_samples + ITEMS - 1) // ITEMS
    if family == 0:
        line = Line(number, height, width, width, 1, 0, height, n_samples)
        along, beside = climb.right + n * climb.right_apart, climb.down + n * climb.down_apart
        near = Near(along, width - 1, 1, beside, width, 1)
    else:
        line = Line(number, width, height, 1, width, height, 0, n_samples)
        along, beside = climb.down + n * climb.down_apart, climb.right + n * climb.right_apart
        near = Near(along, 1, width, beside, 1, width - 1)
    r = chunk * ITEMS + tl.arange(0, ITEMS)[None, :]
    ends, real = climb.changed + n * n_samples + r, r < n_samples
    # A sample without changes in the last sweep has converged.  A line needs an update only if it or an adjacent line
    # changed since its last turn.
    going = tl.load(ends, mask=real, other=-1, cache_modifier=".cg") >= now.sweep - 1
    stamp = climb.stamps + n * (height + width) * n_samples + r
    if now.sweep > 1:
        going = has_changed(stamp, line, going, now.before)
    if tl.max(going.to(tl.int32)) > 0:
        place = n * height * width + number.to(tl.int64) * line.apart
        chunked = (n * (n_chunks - 1) + chunk) * height * width + place
        cells = tl.arange(0, KIND.part)[:, None] * ITEMS + tl.arange(0, ITEMS)[None, :]
        scores = climb.noisy + chunked * KIND.n_labels * ITEMS + cells
        place = place * n_samples + r
        walls = climb.walls + place + family * n_images.to(tl.int64) * height * width * n_samples
        site = Site(scores, climb.labels + place, climb.turns + place, walls, real)
        if KIND.whole:
            better = going & best_labels(site, near, notes.choices, line, KIND)
        else:
            find_parts(site, notes, line, going, now.before, ITEMS)
            tl.debug_barrier()  # other threads wrote the notes, here and below
            better, n_runs = best_labels_in_parts(site, near, notes, line, KIND)
            better &= going
        if tl.max(better.to(tl.int32)) > 0:
            tl.debug_barrier()
            if KIND.whole:
                trace(site, notes.choices, stamp, now.turn, line, better, KIND)
            else:
                trace_parts(site, notes, n_runs, stamp, now.turn, line, better, KIND)
            tl.store(ends, tl.zeros([1, ITEMS], tl.int32) + now.sweep, mask=better)
            tl.store(now.latest, now.sweep)
        tl.debug_barrier()  # before the notes of the next line


@triton.jit(noinline=True)
def _improve_parts(climb, notes, n_images, n_samples, now, family, n, number, chunk, KIND: tl.constexpr):
    """Call `_improve` without inlining: inlined, it would take registers from the updates of whole lines."""
    _improve(climb, notes, n_images, n_samples, now, family, n, number, chunk, KIND)
