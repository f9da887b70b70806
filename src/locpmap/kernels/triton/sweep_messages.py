"""Many sweeps of messages in one launch, in either algebra: what `pass_messages` and `pass_linear` share.

The programs all run at once and take the tiles of one level of the order after another.  Sites of a level are not
neighbours of each other, so that what they read is not written before the next level; levels are colour classes, or
as many as an order needs in which neighbours follow each other.  A sweep moves 4 bytes times (3 · 2E + S) · L through
the second cache where every site is marked, and reads the marks where none is; the first such sweep is the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.grid_slots import cells_of, shape_of
from locpmap.kernels.triton.local_scores import Pairs
from locpmap.kernels.triton.messages import rows
from locpmap.kernels.triton.send_messages import add, send, slots_to
from locpmap.kernels.triton.turns import BARRIER, at_once, resident_programs, wait_for_all

_LANES = 512  # sites times labels of a tile: 4 for each thread, which one load of 16 bytes brings


def sweep_messages(
    model: Model,
    own: torch.Tensor,
    pairs: Pairs,
    order: torch.Tensor,
    messages: torch.Tensor,
    dirty: torch.Tensor,
    linear: torch.Tensor,
    rho: torch.Tensor | None,
    damping: float,
    tolerance: float,
    part: tuple[int, int, int, int],
    n_sweeps: int,
    algebra: dict[str, Any],
    ends: Sequence[int] | None = None,
    grid: tuple[int, int, int] | None = None,
    undamped: int = 0,
    made: int = 0,
    copies: int = 1,
    last: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sweep until no site is marked, at most ``n_sweeps`` times.

    Returns which of the sweeps visited any site, and whether one more would, (n_sweeps + 1,).

    Args:
        model: The lists of neighbours; of the rest only whether the model is Potts.
        own: (N, S, L) unaries, or weights in the linear domain.
        pairs: The pairwise terms; couplings in place of features in the linear domain.
        order: (V,) sites to visit.
        messages: (N, 2E, L), changed in place.
        dirty: (N, S), changed in place.
        linear: (N,) which images are kept in the linear domain; others are not for its algebra, nor these for others.
        rho: (E,), or None where it is 1 everywhere.
        damping: Share of the old message in the new.
        tolerance: A message no entry of which moves by more than this stays as it is.
        part: Images lo..hi, positions begin..stop.
        n_sweeps: At most so many.
        algebra: LINEAR, MAXIMISE and N_FEATURES.
        ends: Where levels of the order begin and end; by default the colour classes of the model's order, and
            every position by itself of any other.
        grid: Height and width of the grid of 4 neighbours that the model's order is of, and the parity of row + column
            at its corner: where the model is Potts, its lists are not read then.
        undamped: Damping begins after so many sweeps.
        made: Sweeps made before.
        copies: Images that share a model's pairwise terms, such as samples of it: image n has those of n // copies.
        last: (N,) int32, where to note the number of the last sweep that changed a message of each image.
    """
    lo, hi, begin, stop = part
    # What `wait_for_all` needs; whether each sweep visited any site, and whether one more would.
    visited = torch.zeros(BARRIER.value + n_sweeps + 1, dtype=torch.int32, device=messages.device)
    n_labels = own.shape[2]
    labels = 1 << (n_labels - 1).bit_length()
    # Slots of a site at a time: all of them on a grid of 4 neighbours; tables leave no registers for several.
    sizes = {"N_LABELS": n_labels, "LABELS": labels, "BLOCK": max(1, _LANES // labels), "WAYS": 4 if model.potts else 1}
    shape = None
    if grid and model.potts and order is model.order and (begin, stop) == (0, own.shape[1]):
        shape = shape_of(*grid)
        bounds: tuple[int, ...] = (0, shape.n_cells, 2 * shape.n_cells)
    else:
        if ends is None:
            ends = model.class_ptr if order is model.order else range(len(order) + 1)
        bounds = tuple(sorted({min(max(int(end), begin), stop) for end in ends}))
    widest = max((b - a for a, b in pairwise(bounds)), default=0)
    n_tiles = (hi - lo) * -(-widest // sizes["BLOCK"])
    if n_tiles > 0:
        # No more programs than it takes for each to have as many tiles as any: they wait for one another.
        n_rounds = -(-n_tiles // resident_programs(messages.device))
        n_programs = -(-n_tiles // n_rounds)
        _sweep[(n_programs,)](
            own,
            pairs,
            model.reverse,
            order,
            shape,
            _placed(bounds, messages.device),
            messages,
            dirty,
            linear,
            rho,
            last,
            visited,
            visited[BARRIER.value :],
            own.shape[1],
            messages.shape[1],
            copies,
            float(damping),
            float(tolerance),
            lo,
            hi - lo,
            len(bounds) - 1,
            n_sweeps,
            made,
            undamped,
            POTTS=bool(model.potts),
            DAMPED=damping > 0,
            **algebra,
            **sizes,
            **at_once(),
        )
    return visited[BARRIER.value :]


@lru_cache(maxsize=32)
def _placed(bounds: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The bounds as a tensor; a copy to the device makes the host wait."""
    return torch.tensor(bounds, dtype=torch.int32, device=device)


@triton.jit(do_not_specialize=["lo", "n_images", "n_levels", "n_sweeps", "made", "undamped"])
def _sweep(
    own,
    pairs,
    reverse,
    order,
    shape,
    bounds,
    messages,
    dirty,
    linear,
    rho,
    last,
    arrivals,
    visited,
    n_sites,
    n_slots,
    copies,
    damping: tl.float64,
    tolerance: tl.float64,
    lo,
    n_images,
    n_levels,
    n_sweeps,
    made,
    undamped,
    LINEAR: tl.constexpr,
    MAXIMISE: tl.constexpr,
    POTTS: tl.constexpr,
    DAMPED: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
):
    """``visited`` (n_sweeps + 1,) is 0 at first."""
    turn = 0
    sweep = 0
    while sweep <= n_sweeps:
        busy = 0
        level = 0
        while level < n_levels:
            first, stop = tl.load(bounds + level), tl.load(bounds + level + 1)
            per_image = (stop - first + BLOCK - 1) // BLOCK
            tile = tl.program_id(0)
            while tile < n_images * per_image:
                image = (lo + tile // per_image).to(tl.int64)
                found = _visit(
                    own + image * n_sites * N_LABELS,
                    pairs,
                    reverse,
                    order,
                    shape,
                    messages + image * n_slots * N_LABELS,
                    dirty + image * n_sites,
                    tl.load(linear + image),
                    rho,
                    last,
                    damping,
                    tolerance,
                    image,
                    copies,
                    first + tile % per_image * BLOCK,
                    first,
                    stop,
                    level,
                    made + sweep + 1,
                    undamped,
                    sweep == n_sweeps,
                    LINEAR,
                    MAXIMISE,
                    POTTS,
                    DAMPED,
                    N_FEATURES,
                    N_LABELS,
                    LABELS,
                    BLOCK,
                    WAYS,
                )
                if (found > 0) & (busy == 0):
                    tl.store(visited + sweep, 1)  # once is enough: others write there, too
                busy = tl.maximum(busy, found)
                tile += tl.num_programs(0)
            turn += 1
            if sweep < n_sweeps:
                wait_for_all(arrivals, turn, tl.num_programs(0))
            level += 1
        sweep = tl.where(tl.load(visited + sweep, volatile=True) > 0, sweep + 1, n_sweeps + 1)


@triton.jit
def _visit(
    own,
    pairs,
    reverse,
    order,
    shape,
    messages,
    dirty,
    is_linear,
    rho,
    last,
    damping,
    tolerance,
    image,
    copies,
    position,
    begin,
    stop,
    colour,
    number,
    undamped,
    only_look,
    LINEAR: tl.constexpr,
    MAXIMISE: tl.constexpr,
    POTTS: tl.constexpr,
    DAMPED: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
):
    """Let the marked sites among BLOCK positions send, unless told only to look; returns 0 where none is marked."""
    position += tl.arange(0, BLOCK)
    inside = position < stop
    if shape is None:
        site = tl.load(order + position, mask=inside, other=0)
        row, column = site, site  # nobody asks
    else:
        row, column = cells_of(shape, position - begin, colour)
        inside &= (row < shape.height) & (column < shape.width)
        site = tl.where(inside, row * shape.width + column, 0)
    site = site.to(tl.int64)
    mark = tl.load(dirty + site, mask=inside, other=0, cache_modifier=".cg")
    active = (mark > 0) & ((is_linear != 0) == LINEAR)
    if shape is None:
        start = tl.load(pairs.indptr + site, mask=active, other=0)
        degree = (tl.load(pairs.indptr + site + 1, mask=active, other=0) - start).to(tl.int32)
        found = tl.max(tl.where(active, degree + 1, 0), axis=0)
    else:
        start, degree = site, row  # nobody asks
        found = tl.max(tl.where(active, WAYS + 1, 0), axis=0)
    if (found > 0) & (only_look == 0):
        dtype = messages.dtype.element_ty
        nothing: tl.constexpr = 0.0 if LINEAR else float("-inf")
        tl.debug_barrier()  # several warps hold the same mark: all must have read it before one clears it
        tl.store(dirty + site, tl.zeros_like(mark), mask=active)
        whole = rows(own, site[:, None], active[:, None], nothing, N_LABELS, LABELS).to(dtype)
        damped, most = tl.full([1, 1, 1], damping, dtype), tl.full([1, 1, 1], tolerance, dtype)
        damped = tl.where(number > undamped, damped, 0.0)
        features = pairs.features + image // copies * pairs.feature_image
        tables = pairs.tables + image // copies * pairs.table_image
        what = (pairs, reverse, shape, messages, dirty, rho, features, tables, damped, most)
        where = (row, column, start, degree, active, mark > 1)
        if shape is None:
            first = 0
            while first < found - 1:
                for way in tl.static_range(WAYS):
                    slot, real = slots_to(what, where, first, way)
                    edge = tl.load(pairs.edge + slot, mask=real, other=0)
                    received = rows(messages, slot, real, 1.0 if LINEAR else 0.0, N_LABELS, LABELS, ".cg")
                    whole = add(whole, received, rho, edge, real, LINEAR)
                first += WAYS
        first = 0
        while first < found - 1:
            changed = send(
                what, where, whole, first, LINEAR, MAXIMISE, POTTS, DAMPED, N_FEATURES, N_LABELS, LABELS, WAYS
            )
            if last is not None:
                tl.store(last + image, number, mask=tl.max(changed.to(tl.int32)) > 0)
            first += WAYS
    return found
