"""Beliefs of sites from messages, and the edges' terms of the Bethe approximation of log Z; see the reference.

Sums have the beliefs' dtype.  An edge of a Potts model takes O(L).
"""

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.local_scores import pairs_of
from locpmap.kernels.triton.messages.messages import belief, cavity, lists_of, log_sum, rows, send, slots_of, tile_of


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
    features, tables = pairs.features + image * pairs.feature_image, pairs.tables + image * pairs.table_image
    position = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    site, active, start, degree = lists_of(pairs, order, position, n_sites)
    own = rows(beliefs, site[:, None], active[:, None], -float("inf"), TILE)
    sums = tl.zeros([BLOCK], beliefs.dtype.element_ty)
    first, widest = 0, tl.max(degree, axis=0)
    while first < widest:
        slot, real = slots_of(start, degree, first, TILE)
        end = tl.load(pairs.end + slot, mask=real, other=1)
        real &= end == 0  # count each edge once
        edge = tl.load(pairs.edge + slot, mask=real, other=0).to(tl.int64)
        back = tl.load(pairs.reverse + slot, mask=real, other=0)
        other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
        here = cavity(own, rows(messages, slot, real, 0.0, TILE))
        there = rows(beliefs, other_end, real, -float("inf"), TILE)
        there = cavity(there, rows(messages, back, real, 0.0, TILE))
        sent, taken = send(here, pairs, features, tables, edge, end, real, 1.0, False, TILE)
        added = tl.where(real[:, :, None], taken + log_sum(sent + there), 0.0)
        sums += tl.sum(tl.sum(added, axis=2), axis=1)
        first += TILE.degrees
    tl.store(terms + image * n_sites + site, sums, mask=active)
