"""Results computed from messages: beliefs, edge terms of the Bethe approximation, log Z of forests; see the reference.

Sums have the beliefs' dtype.  An edge of a Potts model takes O(L).  For log Z of spanning forests under the
reparametrised scores, one program per image and forest goes from the deepest sites to the roots, level by level.  Each
site gathers its children's messages, rather than children adding to their parent, so sums have a fixed order.
"""

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.local_scores import pairs_of
from locpmap.kernels.triton.messages.messages import belief, cavity, lists_of, log_sum, rows, send, slots_of, tile_of

_WARPS = 8  # 16 lanes per thread: most levels fit into one tile


def log_beliefs(model: Model, messages: Array, rho: Array | None) -> tuple[Array, Array]:
    """Return the log beliefs (N, S, L) and their normalisers, (N, S); ``rho`` None means 1."""
    tile, (n_images, n_sites, _) = tile_of(model), model.unary.shape
    beliefs = torch.empty(model.unary.shape, dtype=messages.dtype, device=messages.device)
    normalisers = torch.empty((n_images, n_sites), dtype=messages.dtype, device=messages.device)
    arrays = (model.unary, pairs_of(model), model.order, messages, rho, beliefs, normalisers)
    _believe[(n_images * -(-n_sites // tile.block),)](*arrays, n_sites, messages.shape[1], tile)
    return beliefs, normalisers


def bethe_edges(model: Model, messages: Array, beliefs: Array) -> Array:
    """Return the terms of the edges that begin at each site, summed, (N, S)."""
    tile, (n_images, n_sites, _) = tile_of(model), beliefs.shape
    terms = torch.empty((n_images, n_sites), dtype=messages.dtype, device=messages.device)
    arrays = (pairs_of(model), model.order, messages, beliefs, terms)
    _add_edges[(n_images * -(-n_sites // tile.block),)](*arrays, n_sites, messages.shape[1], tile)
    return terms


@triton.jit
def _believe(unary, pairs, order, messages, rho, beliefs, normalisers, n_sites, n_slots, TILE: tl.constexpr):
    """Compute the beliefs of a block of sites of one image."""
    blocks = tl.cdiv(n_sites, TILE.block)
    image = (tl.program_id(0) // blocks).to(tl.int64)
    messages += image * n_slots * TILE.n_labels
    position = tl.program_id(0) % blocks * TILE.block + tl.arange(0, TILE.block)
    site, active, start, degree = lists_of(pairs, order, position, n_sites)
    row = image * n_sites + site
    own = rows(unary, row[:, None], active[:, None], -float("inf"), TILE).to(beliefs.dtype.element_ty)
    whole = belief(own, messages, rho, pairs, start, degree, tl.max(degree, axis=0), TILE)
    stuck = tl.max(whole, axis=2, keep_dims=True) == -float("inf")
    whole = tl.where(stuck, own, whole)
    # Subtract the maximum first: next to large scores, the logarithm of the sum is lost in rounding.
    top = tl.max(whole, axis=2, keep_dims=True)
    whole -= tl.where(active[:, None, None], top, 0.0)
    log_total = tl.log(tl.sum(tl.exp(whole), axis=2, keep_dims=True))
    label = tl.arange(0, TILE.labels)[None, None, :]
    target = beliefs + row[:, None, None] * TILE.n_labels + label
    tl.store(target, whole - log_total, mask=active[:, None, None] & (label < TILE.n_labels))
    taken = tl.where(stuck, -float("inf"), top + log_total)
    tl.store(normalisers + row[:, None, None], taken, mask=active[:, None, None])


@triton.jit
def _add_edges(pairs, order, messages, beliefs, terms, n_sites, n_slots, TILE: tl.constexpr):
    """Sum the edge terms of a block of sites of one image."""
    BLOCK: tl.constexpr = TILE.block
    blocks = tl.cdiv(n_sites, BLOCK)
    image = (tl.program_id(0) // blocks).to(tl.int64)
    messages += image * n_slots * TILE.n_labels
    beliefs += image * n_sites * TILE.n_labels
    position = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    site, active, start, degree = lists_of(pairs, order, position, n_sites)
    own = rows(beliefs, site[:, None], active[:, None], -float("inf"), TILE)
    sums = tl.zeros([BLOCK], beliefs.dtype.element_ty)
    first, widest = 0, tl.max(degree, axis=0)
    while first < widest:
        slot, real = slots_of(start, degree, first, TILE)
        real &= tl.load(pairs.end + slot, mask=real, other=1) == 0  # count each edge once
        edge = tl.load(pairs.edge + slot, mask=real, other=0).to(tl.int64)
        back = tl.load(pairs.reverse + slot, mask=real, other=0)
        other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
        here = cavity(own, rows(messages, slot, real, 0.0, TILE))
        there = rows(beliefs, other_end, real, -float("inf"), TILE)
        there = cavity(there, rows(messages, back, real, 0.0, TILE))
        sent, taken = send(here, pairs, image, slot, edge, real, 1.0, False, TILE)
        added = tl.where(real[:, :, None], taken + log_sum(sent + there), 0.0)
        sums += tl.sum(tl.sum(added, axis=2), axis=1)
        first += TILE.degrees
    tl.store(terms + image * n_sites + site, sums, mask=active)


def forest_log_partitions(model: Model, messages: Array, rho: Array, parents: Array, maximise: bool = False) -> Array:
    """Return log Z or the best score of images and forests, (N, K) float64; ``parents`` (K, S) as in the reference."""
    (n_images, n_sites, n_labels), n_forests, device = model.unary.shape, len(parents), messages.device
    order, ends = _by_depth(model, parents)
    sent = torch.empty((n_images, n_forests, n_sites, n_labels), dtype=messages.dtype, device=device)
    values = torch.empty((n_images, n_forests), dtype=torch.float64, device=device)
    state = ((model.unary, messages, rho, sent, values), pairs_of(model), (parents, order, ends))
    numbers = (n_sites, messages.shape[1], ends.shape[1] - 1)
    _ascend[(n_images, n_forests)](*state, *numbers, maximise, tile_of(model, 4 * _WARPS), num_warps=_WARPS)
    return values


def _by_depth(model: Model, parents: Array) -> tuple[Array, Array]:
    """Return the sites of each forest sorted by depth, (K, S), and the first position of each depth."""
    n_sites = parents.shape[1]
    site = torch.arange(n_sites, device=parents.device).expand_as(parents)
    above = site
    if len(model.neighbour):
        above = torch.where(parents < 0, site, model.neighbour[parents.clamp(min=0).long()].long())
    depth = (above != site).long()
    step = 1
    while step < n_sites:  # doubling: ``above`` is 1, 2, 4, .. sites up, ``depth`` the number of edges to it
        depth = depth + depth.gather(1, above)
        above = above.gather(1, above)
        step *= 2
    levels = torch.arange(int(depth.max()) + 2, device=parents.device)
    ordered, order = torch.sort(depth, dim=1, stable=True)
    ends = torch.searchsorted(ordered, levels.expand(len(parents), -1).contiguous())
    return order.to(torch.int32), ends.to(torch.int32)


@triton.jit(do_not_specialize=["n_levels"])
def _ascend(arrays, pairs, forests, n_sites, n_slots, n_levels, MAX: tl.constexpr, TILE: tl.constexpr):
    """Compute log Z or the best score of one image and forest; ``ends`` (K, levels + 1)."""
    N_LABELS: tl.constexpr = TILE.n_labels
    BLOCK: tl.constexpr = TILE.block
    unary, messages, rho, sent, values = arrays
    parents, order, ends = forests
    forest = tl.program_id(1)
    image = tl.program_id(0).to(tl.int64)
    unary += image * n_sites * N_LABELS
    messages += image * n_slots * N_LABELS
    sent += (image * tl.num_programs(1) + forest) * n_sites * N_LABELS
    parents += forest * n_sites
    order += forest * n_sites
    ends += forest * (n_levels + 1)
    dtype = messages.dtype.element_ty
    label = tl.arange(0, TILE.labels)[None, None, :]
    total = tl.zeros([BLOCK, 1, 1], tl.float64)
    level = n_levels - 1
    while level >= 0:
        position, stop = tl.load(ends + level), tl.load(ends + level + 1)
        while position < stop:
            site, inside, start, degree = lists_of(pairs, order, position + tl.arange(0, BLOCK), stop)
            most = tl.max(degree, axis=0)
            whole = rows(unary, site[:, None], inside[:, None], -float("inf"), TILE).to(dtype)
            whole = belief(whole, messages, rho, pairs, start, degree, most, TILE)
            first = 0
            while first < most:
                slot, real = slots_of(start, degree, first, TILE)
                other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
                back = tl.load(pairs.reverse + slot, mask=real, other=0)
                child = real & (tl.load(parents + other_end, mask=real, other=-1) == back)
                said = rows(sent, other_end, child, 0.0, TILE, ".cg")
                whole += tl.sum(cavity(said, rows(messages, slot, child, 0.0, TILE)), 1, keep_dims=True)
                first += TILE.degrees
            up = tl.load(parents + site, mask=inside, other=-1)[:, None]
            real = up >= 0
            edge = tl.load(pairs.edge + up, mask=real, other=0).to(tl.int64)
            here = cavity(whole, rows(messages, up, real, 0.0, TILE))
            scale = 1.0 / tl.load(rho + edge, mask=real, other=1.0).to(dtype)[:, :, None]
            fresh, taken = send(here, pairs, image, up, edge, real, scale, MAX, TILE)
            root = tl.max(whole, axis=2, keep_dims=True) if MAX else log_sum(whole)
            gain = tl.where(real[:, :, None], taken, root)
            total += tl.where(inside[:, None, None], gain, 0.0).to(tl.float64)
            target = sent + site[:, None, None] * N_LABELS + label
            tl.store(target, fresh, mask=real[:, :, None] & (label < N_LABELS))
            position += BLOCK
        tl.debug_barrier()  # the next level reads the messages of this one
        level -= 1
    tl.store(values + image * tl.num_programs(1) + forest, tl.sum(total))
