"""Messages along edges as device functions; see the reference for the definitions.

Tensors are (B, D, K): B sites, D slots (positions in the concatenated neighbour lists) of each, K labels, a power of
two.  Axes without slots or labels have length 1.  A cavity is a belief without one neighbour's message.  Lanes beyond a
list or the labels have cavity -inf, so they contribute nothing.  ``TILE`` is a `Tile`, ``pairs`` a `Pairs`.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.local_scores import neighbours, pair_scores

_INF = tl.constexpr(float("inf"))
_FAR = tl.constexpr(40.0)  # 1 - exp(-weight) rounds to 1 for Potts weights above this
_CACHED = tl.constexpr("")  # a bare string as a default value does not compile (Triton 3.6)

_LANES = 128  # per warp and tile: 4 per thread, which one load of 16 bytes fetches
_SLOTS = 4  # of a neighbour list processed together: all of them on a 4-connected grid


class Tile(NamedTuple):
    """The compile-time constants of kernels over messages."""

    potts: bool
    n_features: int
    n_labels: int
    labels: int  # K
    degrees: int  # D
    block: int  # B


def tile_of(model: Model, n_warps: int = 4) -> Tile:
    """Return a tile with at least `_LANES` lanes per warp."""
    n_labels = model.unary.shape[2]
    labels = 1 << (n_labels - 1).bit_length()  # triton.next_power_of_2 takes as long as an allocation
    degrees = max(1, min(_SLOTS, _LANES * n_warps // labels))
    block = max(1, _LANES * n_warps // (labels * degrees))
    return Tile(bool(model.potts), model.features.shape[2], n_labels, labels, degrees, block)


@triton.jit
def lists_of(pairs, order, position, stop):
    """Return the sites (B,) at positions of an order, which of them exist, and the start and length of their lists."""
    inside = position < stop
    site = tl.load(order + position, mask=inside, other=0).to(tl.int64)
    start, degree = neighbours(pairs, site, inside)
    return site, inside, start, degree


@triton.jit
def slots_of(start, degree, first, TILE: tl.constexpr):
    """Return slots ``first..first + D`` of neighbour lists (B,) as (B, D), and which of them exist."""
    offset = first + tl.arange(0, TILE.degrees)[None, :]
    return start[:, None] + offset, offset < degree[:, None]


@triton.jit
def rows(array, row, real, other: tl.constexpr, TILE: tl.constexpr, FRESH: tl.constexpr = _CACHED):
    """Load rows (B, D) of an array (.., L) as (B, D, K); FRESH is ".cg" if programs of this launch write the array."""
    label = tl.arange(0, TILE.labels)[None, None, :]
    mask = real[:, :, None] & (label < TILE.n_labels)
    place = array + row.to(tl.int64)[:, :, None] * TILE.n_labels + label
    return tl.load(place, mask=mask, other=other, cache_modifier=FRESH)


@triton.jit
def log_add(a, b):
    """Return ``log(exp a + exp b)``."""
    high, low = tl.maximum(a, b), tl.minimum(a, b)
    return high + tl.log(1.0 + tl.exp(low - tl.where(high == -_INF, 0.0, high)))


@triton.jit
def log_sum(values):
    """Return ``log Σ exp`` over labels, (B, D, 1); -inf where every entry is."""
    top = tl.max(values, axis=2, keep_dims=True)
    return top + tl.log(tl.sum(tl.exp(values - tl.where(top == -_INF, 0.0, top)), axis=2, keep_dims=True))


@triton.jit
def belief(scores, messages, rho, pairs, start, degree, widest, TILE: tl.constexpr):
    """Add the messages of all neighbours to the unaries (B, 1, K), weighted by the edges' ``rho`` (1 if None)."""
    first = 0
    while first < widest:
        slot, real = slots_of(start, degree, first, TILE)
        received = rows(messages, slot, real, 0.0, TILE).to(scores.dtype)
        scores += message_sum(received, rho, tl.load(pairs.edge + slot, mask=real, other=0), real)
        first += TILE.degrees
    return scores


@triton.jit
def message_sum(received, rho, edge, real):
    """Return the sum (B, 1, K) of the messages ``received`` (B, D, K), weighted by ``rho[edge]``; None means 1."""
    if rho is not None:
        share = tl.load(rho + edge, mask=real, other=0.0)
        received *= share.to(received.dtype)[:, :, None]
    return tl.sum(received, axis=1, keep_dims=True)


@triton.jit
def cavity(belief, message):
    """Return a belief without the message of one neighbour."""
    forbidden = message == -_INF
    return tl.where(forbidden, -_INF, belief - tl.where(forbidden, 0.0, message))


@triton.jit
def of_label(values, a, TILE: tl.constexpr):
    """Return the values of label ``a``, (B, D, 1)."""
    label = tl.arange(0, TILE.labels)[None, None, :]
    return tl.max(tl.where(label == a, values, -_INF), axis=2, keep_dims=True)


@triton.jit
def send(cavity, pairs, image, slot, edge, real, scale, MAXIMISE: tl.constexpr, TILE: tl.constexpr):
    """Return the message of a cavity to slots (B, D), with scores multiplied by ``scale``, and its normaliser.

    ``edge`` are the edges of the slots, which are read themselves only if the model has tables.
    """
    if TILE.potts:
        weights = pairs.features + image * pairs.feature_image + edge * pairs.feature_edge
        weight = tl.load(weights, mask=real, other=0.0)[:, :, None]
        return _send_potts(cavity, weight * scale, MAXIMISE, TILE)
    else:
        return _send_table(cavity, pairs, image, tl.where(real, slot, -1)[:, :, None], scale, MAXIMISE, TILE)


@triton.jit
def _send_table(cavity, pairs, image, slot, scale, MAXIMISE: tl.constexpr, TILE: tl.constexpr):
    """Compute the message through tables."""
    N_LABELS: tl.constexpr = TILE.n_labels
    label = tl.arange(0, TILE.labels)[None, None, :]
    top = tl.full(cavity.shape, -_INF, cavity.dtype)
    highest = tl.full(cavity.shape, -_INF, cavity.dtype)
    for a in range(N_LABELS):
        scores = scale * pair_scores(pairs, image, slot, a, label, TILE)
        highest = tl.maximum(highest, tl.where(label < N_LABELS, scores, -_INF))
        top = tl.maximum(top, of_label(cavity, a, TILE) + scores)
    shift = tl.max(highest, axis=2, keep_dims=True)
    shift = tl.where(shift == -_INF, 0.0, shift)
    if MAXIMISE:
        total = tl.max(cavity, axis=2, keep_dims=True)
    else:
        total = log_sum(cavity)
        terms = tl.zeros(cavity.shape, cavity.dtype)
        base = tl.where(top == -_INF, 0.0, top)
        for a in range(N_LABELS):
            scores = scale * pair_scores(pairs, image, slot, a, label, TILE)
            terms += tl.exp(of_label(cavity, a, TILE) + scores - base)
        top += tl.log(terms)
    fresh = tl.where(total == -_INF, 0.0, top - tl.where(total == -_INF, 0.0, total) - shift)
    return fresh, total + shift


@triton.jit
def _send_potts(cavity, weight, MAXIMISE: tl.constexpr, TILE: tl.constexpr):
    """Compute the message through ``weight`` (B, D, 1) times the identity, in O(L)."""
    label = tl.arange(0, TILE.labels)[None, None, :]
    top = tl.max(cavity, axis=2, keep_dims=True)
    best = label == tl.min(tl.where(cavity == top, label, TILE.labels), axis=2, keep_dims=True)
    away = cavity - tl.where(top == -_INF, 0.0, top)
    attraction = tl.maximum(weight, 0.0)
    if MAXIMISE:
        total = top
        second = tl.max(tl.where(best, -_INF, away), axis=2, keep_dims=True)
        repelled = tl.where(best, tl.maximum(second, weight), 0.0)
        fresh = tl.where(weight < 0, repelled, tl.maximum(away, -attraction))
    else:
        mass = tl.exp(away)
        rest = tl.sum(tl.where(best, 0.0, mass), axis=2, keep_dims=True)
        share = 1.0 / (1.0 + rest)
        excess = tl.log(1.0 + rest)
        total = top + excess
        differ = tl.exp(-attraction)
        fresh = tl.log(differ + (1.0 - differ) * share * mass)
        if tl.max(weight) > _FAR:
            fresh = tl.where(weight > _FAR, log_add(-attraction, away - excess), fresh)
        if tl.min(weight) < 0:
            # Where one label has nearly all the mass, 1 minus its share cancels: sum the others instead.
            others = log_sum(tl.where(best, -_INF, away))
            repulsion = tl.minimum(weight, 0.0)
            sure = log_add(others, repulsion) - excess
            unsure = tl.log(1.0 + tl.where(best, 0.0, (tl.exp(repulsion) - 1.0) * share * mass))
            fresh = tl.where(weight < 0, tl.where(best, sure, unsure), fresh)
    return tl.where(top == -_INF, 0.0, fresh), total + attraction


@triton.jit
def mix(old, fresh, damping, MAXIMISE: tl.constexpr):
    """Return a damped message; labels forbidden in the old or new message are not damped."""
    free = (fresh > -_INF) & (old > -_INF)
    if MAXIMISE:
        mixed = damping * tl.where(free, old, 0.0) + (1.0 - damping) * tl.where(free, fresh, 0.0)
    else:
        mixed = log_add(tl.log(damping) + old, tl.log(1.0 - damping) + fresh)
    return tl.where(free, mixed, fresh)
