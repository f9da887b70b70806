"""Messages on a GPU, and launches that perform many sweeps, in the log or linear domain.

All programs are resident and process one level of the order after another.  Levels are colour classes or, for a
sequential order, sets of sites that can be visited in parallel.  Sites of a level are not neighbours, so their inputs
stay constant until the next level.  A site is marked (dirty) until visited, and again when it receives a new message.
With all sites marked, a sweep moves 4 · (3 · 2E + S) · L bytes through the L2 cache; without, it only reads the marks.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.message_plan import UNDAMPED_SWEEPS, Domain
from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.grid_barrier import BARRIER, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.local_scores import neighbours, pairs_of, strides_of
from locpmap.kernels.triton.messages.grid_slots import cells_of, shape_of
from locpmap.kernels.triton.messages.messages import rows, tile_of
from locpmap.kernels.triton.messages.send_messages import Algebra, Image, Senders, add, send_ways, slots_to

_LANES = 512  # sites times labels per tile: 4 per thread, which one load of 16 bytes fetches


class DevicePlan(NamedTuple):
    """The schedule and the options of message passing on one graph."""

    order: Array  # (V,) sites in the order in which a sweep visits them
    damping: float  # fraction of the old message in the new one
    tolerance: float  # a message is stored only if some entry changes by more than this
    exact: bool = False  # whether one sweep gives the exact messages
    ends: Array | None = None  # bounds of the levels of the order; None: the model's colour classes
    # Height and width of the model's 4-connected grid, and the parity of row + column of its corner.  With Potts
    # weights, the neighbour lists of such a grid are not read.
    grid: tuple[int, int, int] | None = None
    undamped: int = UNDAMPED_SWEEPS  # number of sweeps before damping begins


@dataclass
class DeviceMessages:
    """The state of message passing.  An image without a dirty site has converged and is not updated."""

    messages: Array  # (N, 2E, L) with the unaries' dtype
    dirty: Array  # (N, S) marks of the sites whose messages may change
    plan: DevicePlan
    maximise: bool
    linear: Array  # (N,) images in the linear domain
    rho: Array | None = None  # (E,) fraction of the forests that contain an edge; None means 1
    domain: Domain | None = None  # of sum-product
    weights: Array | None = None  # (N, S, L) `linear_weights`, if any image is linear
    parents: Array | None = None  # (K, S) the slot of each site's parent in every forest, -1 at a root
    launched: int = 0
    made: int = 0  # number of sweeps read back from the device
    settled: bool = False  # whether no site is dirty
    unread: list[Any] = field(default_factory=list)  # results of the last launch, not read back yet

    @property
    def sweeps(self) -> int:
        """Number of sweeps performed; synchronises with the device."""
        if self.unread:
            visited = [answer.tolist() for answer in self.unread]
            self.made += max(sum(sweeps[:-1]) for sweeps in visited)
            self.settled = not any(sweeps[-1] for sweeps in visited)
            self.unread = []
        return self.made

    @property
    def converged(self) -> bool:
        """Whether the messages have converged; synchronises with the device."""
        return (self.sweeps > 0 and self.plan.exact) or self.settled


class State(NamedTuple):
    """The arrays that a sweep reads and writes."""

    own: Any  # (N, S, L) unaries, or weights in the linear domain
    pairs: Any  # couplings in place of features in the linear domain
    order: Any  # (V,) sites to visit
    messages: Any  # (N, 2E, L), changed in place
    dirty: Any  # (N, S), changed in place
    linear: Any  # (N,) images in the linear domain; each launch visits the images of one domain
    rho: Any  # (E,), or None for 1
    last: Any  # (N,) int32, output: the last sweep that changed a message of each image, or None
    n_sites: int
    n_slots: int
    copies: int  # image n has the pairwise terms of the model's image n // copies, e.g. where images are samples


def pass_messages(
    model: Model, messages: DeviceMessages, n_sweeps: int, linear: bool = False, copies: int = 1, last: Any = None
) -> Array:
    """Perform up to ``n_sweeps`` sweeps, until no site is marked.

    Visit the linear-domain images if ``linear``, otherwise the others.  Image n has the pairwise terms of image
    ``n // copies`` of the model.  ``last`` (N,) int32 receives the last sweep that changed a message.

    Return flags (n_sweeps + 1,): whether each sweep visited a site, and whether one more sweep would visit one.
    """
    plan, values, (n_images, n_sites) = messages.plan, messages.messages, messages.dirty.shape
    own, pairs, rho, device = model.unary, pairs_of(model), messages.rho, values.device
    if linear:
        assert messages.domain is not None
        couplings = messages.domain.couplings
        image, edge = strides_of(couplings)
        pairs = pairs._replace(features=couplings, feature_image=image, feature_edge=edge)
        own, rho = messages.weights, None
    arrays = (own, pairs, plan.order, values, messages.dirty, messages.linear, rho, last)
    state = State(*arrays, n_sites, values.shape[1], copies)
    # The words of `wait_for_all`; whether each sweep visited any site, and whether one more would.
    visited = torch.zeros(BARRIER.value + n_sweeps + 1, dtype=torch.int32, device=device)
    # Four neighbours together, all of a 4-connected grid; with tables only one, for lack of registers.
    algebra = Algebra(linear, messages.maximise, plan.damping > 0, 4 if model.potts else 1)
    tile = tile_of(model)
    tile = tile._replace(block=max(1, _LANES // tile.labels))
    shape = None
    if plan.grid and model.potts:
        shape = shape_of(*plan.grid)
        bounds: tuple[int, ...] = (0, shape.n_cells, 2 * shape.n_cells)
    else:
        bounds = tuple(map(int, model.class_ptr if plan.ends is None else plan.ends))
    n_tiles = n_images * -(-max(b - a for a, b in pairwise(bounds)) // tile.block)
    if n_tiles > 0:
        # As few programs as give the same number of rounds: programs wait for one another.
        n_rounds = -(-n_tiles // resident_programs(device))
        n_programs = -(-n_tiles // n_rounds)
        numbers = (n_images, len(bounds) - 1, n_sweeps, messages.sweeps, plan.undamped)
        _sweep[(n_programs,)](
            *(state, shape, _placed(bounds, device), visited, float(plan.damping), float(plan.tolerance)),
            *(*numbers, algebra, tile),
            **at_once(),
        )
    return visited[BARRIER.value :]


@lru_cache(maxsize=32)
def _placed(bounds: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return the bounds as a tensor; cached, because copying to the device makes the host wait."""
    return torch.tensor(bounds, dtype=torch.int32, device=device)


@triton.jit(do_not_specialize=["n_images", "n_levels", "n_sweeps", "made", "undamped"])
def _sweep(
    state,
    shape,
    bounds,
    notes,
    damping: tl.float64,
    tolerance: tl.float64,
    n_images,
    n_levels,
    n_sweeps,
    made,
    undamped,
    ALGEBRA: tl.constexpr,
    TILE: tl.constexpr,
):
    """Perform the sweeps; ``notes``, initially 0, hold the barrier's words and whether each sweep visited a site."""
    BLOCK: tl.constexpr = TILE.block
    visited = notes + BARRIER
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
                n = (tile // per_image).to(tl.int64)
                position = first + tile % per_image * BLOCK
                number, only_look = made + sweep + 1, sweep == n_sweeps
                limits = (damping, tolerance, undamped)
                found = _visit(state, shape, limits, n, position, first, stop, level, number, only_look, ALGEBRA, TILE)
                if (found > 0) & (busy == 0):
                    tl.store(visited + sweep, 1)  # written once per program
                busy = tl.maximum(busy, found)
                tile += tl.num_programs(0)
            turn += 1
            if sweep < n_sweeps:
                wait_for_all(notes, turn, tl.num_programs(0))
            level += 1
        sweep = tl.where(tl.load(visited + sweep, volatile=True) > 0, sweep + 1, n_sweeps + 1)


@triton.jit
def _visit(
    state, shape, limits, n, position, begin, stop, level, number, only_look, ALGEBRA: tl.constexpr, TILE: tl.constexpr
):
    """Send messages from the marked sites of TILE.block positions unless ``only_look``; return 0 if none is marked."""
    WAYS: tl.constexpr = ALGEBRA.ways
    damping, tolerance, undamped = limits
    pairs = state.pairs
    messages, dirty = state.messages + n * state.n_slots * TILE.n_labels, state.dirty + n * state.n_sites
    position += tl.arange(0, TILE.block)
    inside = position < stop
    if shape is None:
        site = tl.load(state.order + position, mask=inside, other=0)
        row, column = site, site  # not read
    else:
        row, column = cells_of(shape, position - begin, level)
        inside &= (row < shape.height) & (column < shape.width)
        site = tl.where(inside, row * shape.width + column, 0)
    site = site.to(tl.int64)
    mark = tl.load(dirty + site, mask=inside, other=0, cache_modifier=".cg")
    active = (mark > 0) & ((tl.load(state.linear + n) != 0) == ALGEBRA.linear)
    if shape is None:
        start, degree = neighbours(pairs, site, active)
        found = tl.max(tl.where(active, degree + 1, 0), axis=0)
    else:
        start, degree = site, row  # not read
        found = tl.max(tl.where(active, WAYS + 1, 0), axis=0)
    if (found > 0) & (only_look == 0):
        dtype = messages.dtype.element_ty
        nothing: tl.constexpr = 0.0 if ALGEBRA.linear else float("-inf")
        silence: tl.constexpr = 1.0 if ALGEBRA.linear else 0.0
        tl.debug_barrier()  # several warps hold the same mark: all must read it before one clears it
        tl.store(dirty + site, tl.zeros_like(mark), mask=active)
        own = state.own + n * state.n_sites * TILE.n_labels
        whole = rows(own, site[:, None], active[:, None], nothing, TILE).to(dtype)
        damped, most = tl.full([1, 1, 1], damping, dtype), tl.full([1, 1, 1], tolerance, dtype)
        damped = tl.where(number > undamped, damped, 0.0)
        image = Image(pairs, shape, messages, dirty, state.rho, n // state.copies, damped, most)
        sites = Senders(row, column, start, degree, active, mark > 1)
        if shape is None:
            first = 0
            while first < found - 1:
                for way in tl.static_range(WAYS):
                    slot, real = slots_to(image, sites, first, way)
                    edge = tl.load(pairs.edge + slot, mask=real, other=0)
                    received = rows(messages, slot, real, silence, TILE, ".cg")
                    whole = add(whole, received, state.rho, edge, real, ALGEBRA.linear)
                first += WAYS
        first = 0
        while first < found - 1:
            changed = send_ways(image, sites, whole, first, ALGEBRA, TILE)
            if state.last is not None:
                tl.store(state.last + n, number, mask=tl.max(changed.to(tl.int32)) > 0)
            first += WAYS
    return found
