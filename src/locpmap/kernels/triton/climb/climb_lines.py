"""Ascent by rows and columns of a 4-connected grid with Potts weights >= 0: `climb_blocks` without neighbour lists.

Lines (rows or columns) of equal parity do not touch.  One launch performs all sweeps: programs share the lines of a
parity, in all samples, and a barrier separates the parities.  A *turn* is one parity of rows or columns; turns are
numbered from 1.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.cache import cached
from locpmap.kernels.model import Array, GridWindow
from locpmap.kernels.perturbation import PLAIN
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.climb.grid_lines import Kind, Line, Site, best_labels, index_bits, trace
from locpmap.kernels.triton.climb.potts_grid import images_apart
from locpmap.kernels.triton.grid_barrier import BARRIER, MOST, REGISTERS, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.perturb import begin, perturb

WARP = 32
ITEMS = 32  # limit of the samples that a program processes together
# For up to FEW_LABELS labels, and for more: the scores of a site that a program (one warp) holds, and the sites that
# its backward pass loads together, ahead of their use.  A fourth site of many labels does not fit into its registers.
FEW_LABELS, FEW, MANY = 8, (64, 4), (256, 3)
BACK = 8  # sites loaded together in the traceback


class State(NamedTuple):
    """The device arrays and sizes common to all lines."""

    noisy: Any  # chunks of scores (n, C, S, L, T)
    right: Any
    right_apart: int  # stride between images; 0 if all images share the weights
    down: Any
    down_apart: int
    labels: Any  # (n, S, R)
    changed: Any  # (n, R): the last sweep that changed each sample
    stamps: Any  # (n, H + W, R): the last turn that changed each row or column
    choices: Any  # (programs, a line and the blank first batch, T): scratch
    height: int
    width: int


PARTS = {"rows": (0, 2), "columns": (2, 4), "rows+columns": (0, 4)}  # even rows, odd rows, even columns, odd columns


def climb_lines(
    unary: Array, right: Array, down: Array, grid: GridWindow, climb: Climb, span: Span
) -> tuple[Array, Array]:
    """Climb for every image and sample by "rows", "columns" or "rows+columns"; return labels (n, S, R), uint8.

    Also return the number of the last sweep that changed a label, (n, R), counted from 1; 0 if there is none.  A sweep
    over rows or columns reads the perturbed scores once.  The perturbed scores are stored in chunks; one chunk holds
    the samples that one Triton program processes together.

    ``unary`` (n, S, L) has at most ``MAX_LINE_LABELS`` labels (`locpmap.kernels.block_plan`).  Potts weights are
    ``right`` (1|n, H, W-1) and ``down`` (1|n, H-1, W).  Even lines of the whole grid are updated first.
    """
    n_images, n_sites, n_labels = unary.shape
    assert climb.blocks is not None
    n_samples, height, width, device = span.n_samples, grid.height, grid.width, unary.device
    labels = torch.empty((n_images, n_sites, n_samples), dtype=torch.uint8, device=device)
    perturbation = climb.perturbation
    # Cached while the weights exist; the potentials hold them where all images share them.
    site_id = cached((right, down), ("sites", grid), lambda: _site_ids(grid, device))
    lanes, wide = (1 << (count - 1).bit_length() for count in (n_labels, n_samples))
    held, ahead = FEW if lanes <= FEW_LABELS else MANY
    length = max(height, width)
    registers = MOST if unary.itemsize > 4 else REGISTERS
    items = min(wide, ITEMS, max(held // lanes, 1))
    noisy = perturb(unary, site_id, perturbation, climb.first_image, span, items)
    begin(unary, noisy, site_id, climb, span, labels)
    n_tiles = n_images * ((length + 1) // 2) * -(-n_samples // items)
    n_programs = min(n_tiles, resident_programs(device, registers, warps=1))
    word = torch.int32 if n_labels + index_bits(n_labels) < 32 else torch.int64
    choices = torch.empty((n_programs, length + ahead, items), dtype=word, device=device)
    # The words of `wait_for_all` and the last sweep with changes; the last sweep that changed each sample; the last
    # turn that changed each row and column.
    parts = (BARRIER.value + 1, n_images * n_samples, n_images * (height + width) * n_samples)
    counts, changed, stamps = torch.zeros(sum(parts), dtype=torch.int32, device=device).split(parts)
    weights = (right, images_apart(right), down, images_apart(down))
    state = State(noisy, *weights, labels, changed, stamps, choices, height, width)
    part = min(WARP // items, lanes)  # one label and sample per lane
    ties = perturbation.scheme != PLAIN  # plain noise leaves almost no ties
    kind = Kind(ties, n_labels, part, items, ahead, BACK)
    numbers = (n_images, n_samples, grid.row, grid.column, climb.max_sweeps, *PARTS[climb.blocks.named])
    _climb_lines[(n_programs,)](state, counts, *numbers, kind, **at_once(registers, warps=1))
    return labels, changed.view(n_images, n_samples)


def _site_ids(grid: GridWindow, device: torch.device) -> Array:
    """Return site numbers in the whole image, the keys of the noise, (S,)."""
    first = grid.row * grid.whole_width + grid.column
    rows = torch.arange(first, first + grid.height * grid.whole_width, grid.whole_width, device=device)
    return (rows[:, None] + torch.arange(grid.width, device=device)).ravel()


@triton.jit(do_not_specialize=["n_images", "n_samples", "row", "column", "max_sweeps", "first_part", "last_part"])
def _climb_lines(
    climb, counts, n_images, n_samples, row, column, max_sweeps, first_part, last_part, KIND: tl.constexpr
):
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
            tile = tl.program_id(0)
            while tile < n_images * n_lines * n_chunks:
                chunk, item = tile % n_chunks, tile // n_chunks
                line, n = first + 2 * (item % n_lines), (item // n_lines).to(tl.int64)
                before = turn - (last_part - first_part)
                _improve(climb, counts, n_samples, sweep, turn, before, part // 2, n, line, chunk, KIND)
                tile += tl.num_programs(0)
            wait_for_all(counts, turn, tl.num_programs(0))
            turn += 1
            part += 1
        # Another program may already have stored the next sweep here.  It began that sweep because this sweep changed a
        # label, so the loop continues in either case.
        latest = tl.load(counts + BARRIER, volatile=True)
        sweep += 1


@triton.jit
def _improve(climb, counts, n_samples, sweep, turn, before, family, n, number, chunk, KIND: tl.constexpr):
    """Set the best labels of a line in a chunk of samples.

    Skip the samples that have converged, and those where neither the line nor an adjacent line changed after turn
    ``before``.
    """
    ITEMS: tl.constexpr = KIND.items
    height, width, n_chunks = climb.height, climb.width, (n_samples + ITEMS - 1) // ITEMS
    right, down = climb.right + n * climb.right_apart, climb.down + n * climb.down_apart
    if family == 0:
        line = Line(number, height, width, width, 1, right + number * (width - 1), 1, down + number * width, width, 1)
        own, crossing = number, height
    else:
        line = Line(number, width, height, 1, width, down + number, width, right + number, 1, width - 1)
        own, crossing = height + number, 0
    r = chunk * ITEMS + tl.arange(0, ITEMS)[None, :]
    ends, real = climb.changed + n * n_samples + r, r < n_samples
    stamps = climb.stamps + n * (height + width) * n_samples + r
    stamp = stamps + own * n_samples
    going = tl.load(ends, mask=real, other=-1, cache_modifier=".cg") >= sweep - 1
    if sweep > 1:
        has_before, has_after = going & (number > 0), going & (number + 1 < line.n_lines)
        latest = tl.load(stamp, mask=going, other=0, cache_modifier=".cg")
        latest = tl.maximum(latest, tl.load(stamp - n_samples, mask=has_before, other=0, cache_modifier=".cg"))
        latest = tl.maximum(latest, tl.load(stamp + n_samples, mask=has_after, other=0, cache_modifier=".cg"))
        going = going & (latest > before)
    if tl.max(going.to(tl.int32)) > 0:
        place = n * height * width + number.to(tl.int64) * line.apart
        chunked = (n * (n_chunks - 1) + chunk) * height * width + place
        cells = tl.arange(0, KIND.part)[:, None] * ITEMS + tl.arange(0, ITEMS)[None, :]
        scores = climb.noisy + chunked * KIND.n_labels * ITEMS + cells
        site = Site(scores, climb.labels + place * n_samples + r, stamps + crossing * n_samples, real, n_samples)
        choices = climb.choices + tl.program_id(0).to(tl.int64) * (tl.maximum(height, width) + KIND.ahead) * ITEMS
        better = going & best_labels(site, line, choices, KIND)
        if tl.max(better.to(tl.int32)) > 0:
            tl.debug_barrier()  # other threads stored the choices
            trace(site, line, choices, turn, better, KIND)
            tl.store(stamp, tl.zeros([1, ITEMS], tl.int32) + turn, mask=better)
            tl.store(ends, tl.zeros([1, ITEMS], tl.int32) + sweep, mask=better)
            tl.store(counts + BARRIER, sweep)
        tl.debug_barrier()  # before the choices of the next line
