"""Ascent by whole rows and columns of a 4-connected grid with Potts weights: `climb_blocks` without its lists.

Lines of one parity do not touch.  One launch makes all sweeps: its programs share the lines of a parity, all samples at
once, and a barrier separates one parity from the next.  At first whole lines are updated.  Later sweeps update only the
parts of long lines that a change can reach (`line_parts`).
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
ITEMS = 32  # samples that a program takes at most
FEW_LABELS = 8
# Lines with more sites and labels than this are updated in parts.  With few labels a program takes so many samples that
# some sample changes nearly everywhere.
LONG, MANY_LABELS = 64, 4
AHEAD, BACK = 4, 8  # sites that are loaded at once, ahead of their use: in the backward pass, and in the traceback
STEP = 2  # the same in parts of lines, which are short; twice as many take twice as long to compile


class Share(NamedTuple):
    """The resources of a program, which is one warp."""

    scores: int  # of a site
    registers: int  # of a thread: the fewer, the more programs


class Room(NamedTuple):
    """The size of each of a program's `Notes`, in places of ITEMS numbers."""

    choices: int
    words: int
    runs: int


class State(NamedTuple):
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
    room: Room


class Kinds(NamedTuple):
    """What a launch is compiled for: one constant."""

    of_lines: Kind  # updates of whole lines
    of_parts: Kind  # updates of parts of lines


class Now(NamedTuple):
    """The time, in sweeps and turns; each parity of rows or columns is one turn of a sweep."""

    sweep: Any
    turn: Any
    before: Any  # the turn of the same lines in the sweep before
    latest: Any  # where to store the last sweep that changed anything


FEW, MANY = Share(64, 128), Share(256, 168)
FOR_PARTS = 144  # registers at least where lines are updated in parts
PARTS = {"rows": (0, 2), "columns": (2, 4), "rows+columns": (0, 4)}  # even rows, odd rows, even columns, odd columns


def climb_lines(
    unary: Array, right: Array, down: Array, attractive: bool, grid: GridWindow, climb: Climb, span: Span, labels: Array
) -> Array:
    """Climb for every image and sample by "rows", "columns" or "rows+columns"; fill ``labels`` (n, S, R).

    Return the last sweep that changed anything, (n, R).  A sweep over rows or columns reads the perturbed scores
    once, which lie in chunks of as many samples as a program takes.

    ``unary`` (n, S, L) has at most ``MAX_LINE_LABELS`` labels (`locpmap.kernels.block_plan`).  Potts weights are
    ``right`` (1|n, H, W-1) and ``down`` (1|n, H-1, W); none of them is below 0 where they are ``attractive``, which
    saves time.  Even lines of the whole grid come first.
    """
    n_images, _, n_labels = unary.shape
    assert climb.blocks is not None
    n_samples, height, width, device = labels.shape[2], grid.height, grid.width, unary.device
    perturbation = climb.perturbation
    # Cached as long as the weights live, which belong to the potentials where all images share them.
    site_id = cached((right, down), ("sites", grid), lambda: _site_ids(grid, device))
    lanes, wide = (1 << (count - 1).bit_length() for count in (n_labels, n_samples))
    share = FEW if lanes <= FEW_LABELS else MANY
    length = max(height, width)
    ties = perturbation.scheme != PLAIN  # plain noise leaves next to none
    # Where scores may tie, an improved line takes the smallest of the best labels everywhere.
    by_parts = not ties and length > LONG and n_labels > MANY_LABELS
    registers = MOST if unary.itemsize > 4 else max(share.registers, FOR_PARTS if by_parts else 0)
    items = min(wide, ITEMS, max(share.scores // lanes, 1))
    noisy = perturb(unary, site_id, perturbation, climb.first_image, span, items)
    begin(unary, noisy, site_id, climb, span, labels)
    n_tiles = n_images * ((length + 1) // 2) * -(-n_samples // items)
    n_programs = min(n_tiles, resident_programs(device, registers, warps=1))
    room = Room(
        length + AHEAD,  # a line, and a blank batch before it
        -(-length // SITES.value) + 2 if by_parts else 0,
        length // 2 + 1 if by_parts else 0,
    )
    word = torch.int32 if n_labels + 2 * index_bits(n_labels) < 32 else torch.int64
    sizes = ((room.choices, word), (room.words, torch.uint32), (room.words, torch.int32), (room.runs, torch.int64))
    notes = Notes(*(torch.empty((n_programs, size, items), dtype=dtype, device=device) for size, dtype in sizes))
    noted = labels.shape if by_parts else (0,)
    turns = torch.zeros(noted, dtype=torch.uint8, device=device)
    walls = torch.empty((2, *noted), dtype=torch.uint8, device=device)
    # What `wait_for_all` needs and the last sweep with changes; the last sweep that changed each sample; and the last
    # turn in which each row and column changed.
    parts = (BARRIER.value + 1, n_images * n_samples, n_images * (height + width) * n_samples)
    counts, changed, stamps = torch.zeros(sum(parts), dtype=torch.int32, device=device).split(parts)
    weights = (right, images_apart(right), down, images_apart(down))
    state = State(noisy, *weights, labels, turns, walls, changed, stamps, height, width, room)
    rounding = ROUNDING if unary.dtype == torch.float64 else 1e-6
    part = min(WARP // items, lanes)  # a label and sample in every lane
    kind = Kind(bool(attractive), ties, by_parts, True, rounding, n_labels, part, items, AHEAD, BACK)
    kinds = Kinds(kind, kind._replace(whole=False, ahead=STEP, back=STEP))
    numbers = (n_images, n_samples, grid.row, grid.column, climb.max_sweeps, *PARTS[climb.blocks.named])
    _climb_lines[(n_programs,)](state, notes, counts, *numbers, kinds, **at_once(registers, warps=1))
    return changed.view(n_images, n_samples)


def _site_ids(grid: GridWindow, device: torch.device) -> Array:
    """Return global site numbers, which key the noise, (S,)."""
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
            # For speed: nearly everything is new to the lines of the first turn twice, to others once.
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
        # A faster program may have noted the next sweep by now: it saw that this one changed something.
        latest = tl.load(counts + BARRIER, volatile=True)
        sweep += 1


@triton.jit
def _improve(climb, notes, n_images, n_samples, now, family, n, number, chunk, KIND: tl.constexpr):
    """Give a line its best labels in a chunk of samples: as a whole, or only the parts that may change."""
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
    # A sample that did not change in the last sweep has converged.  A line needs no update unless it or a line beside
    # it changed since its last turn.
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
            tl.debug_barrier()  # other threads stored the notes, here and below
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
    """Call `_improve` without inlining it, which would cost whole lines their registers."""
    _improve(climb, notes, n_images, n_samples, now, family, n, number, chunk, KIND)
