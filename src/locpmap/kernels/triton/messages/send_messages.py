"""Messages from sites to some of their neighbours, in the log or linear domain: device functions of `sweep_messages`.

A way is a slot number of the neighbour lists, or a direction of a grid.  Each way has its own block (B, 1, K).  So a
thread holds the same site and labels in all blocks, and threads exchange only sums over labels.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from locpmap.kernels.triton.messages.grid_slots import edge_to, slot_to
from locpmap.kernels.triton.messages.messages import cavity, message_sum, mix, of_label, rows, send


class Image(NamedTuple):
    """The messages of one image and the terms of its model."""

    pairs: Any
    shape: Any  # of a 4-connected grid, else None
    messages: Any
    dirty: Any
    rho: Any
    number: Any  # of the image in features and tables
    damping: Any
    tolerance: Any


class Senders(NamedTuple):
    """Sites (B,), given by their neighbour lists, or on a grid by rows and columns."""

    row: Any
    column: Any
    start: Any
    degree: Any
    active: Any
    first_visit: Any


class Algebra(NamedTuple):
    """Compile-time constants of a sweep, except the sizes of its tile."""

    linear: bool
    maximise: bool
    damped: bool
    ways: int  # neighbours that a site sends to together


@triton.jit
def slots_to(image, sites, first, WAY: tl.constexpr):
    """Return the slots (B, 1) of neighbours number ``first + WAY``, and which of them exist."""
    if image.shape is None:
        slot, real = sites.start + first + WAY, first + WAY < sites.degree
    else:
        slot, real = slot_to(image.shape, sites.row, sites.column, WAY)
    return slot[:, None], (real & sites.active)[:, None]


@triton.jit
def send_ways(image, sites, whole, first, ALGEBRA: tl.constexpr, TILE: tl.constexpr):
    """Send to neighbours ``first..first + WAYS``; return which sites changed any message, (B, 1).

    On a grid these are all neighbours, and ``whole`` holds only the sites' unaries.  All loads precede all uses, and
    all uses precede all stores, so that the latencies of the loads overlap.
    """
    WAYS: tl.constexpr = ALGEBRA.ways
    silence: tl.constexpr = 1.0 if ALGEBRA.linear else 0.0
    pairs, dirty, rho = image.pairs, image.dirty, image.rho
    label = tl.arange(0, TILE.labels)[None, None, :]
    dtype: tl.constexpr = whole.dtype
    reals, slots, backs, others, edges, received, olds, theirs = (), (), (), (), (), (), (), ()
    for way in tl.static_range(WAYS):
        slot, real = slots_to(image, sites, first, way)
        if image.shape is None:
            back = tl.load(pairs.reverse + slot, mask=real, other=0)
            other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
            edge = tl.load(pairs.edge + slot, mask=real, other=0)
        else:
            back, other_end, edge = edge_to(image.shape, sites.row, sites.column, way)
            back, other_end, edge = back[:, None], other_end[:, None], tl.where(real, edge[:, None], 0)
        reals += (real,)
        slots += (slot,)
        backs += (back,)
        others += (other_end,)
        edges += (edge.to(tl.int64),)
        received += (rows(image.messages, slot, real, silence, TILE, ".cg"),)
        olds += (rows(image.messages, back, real, silence, TILE, ".cg"),)
        theirs += (tl.load(dirty + other_end, mask=real, other=0, cache_modifier=".cg"),)
    if image.shape is not None:
        for way in tl.static_range(WAYS):
            whole = add(whole, received[way], rho, edges[way], reals[way], ALGEBRA.linear)
    sent, changes = (), ()
    for way in tl.static_range(WAYS):
        real, old, edge = reals[way], olds[way], edges[way]
        if ALGEBRA.linear:
            fresh = _send_linear(whole / received[way], pairs, image.number, slots[way], edge, real, TILE)
            fresh += image.damping * (old - fresh)
            moved = tl.abs(fresh - old) > image.tolerance * fresh
        else:
            scale = tl.full([1, 1, 1], 1.0, dtype)
            if rho is not None:
                scale = 1.0 / tl.load(rho + edge, mask=real, other=1.0).to(dtype)[:, :, None]
            terms = (pairs, image.number, slots[way], edge, real, scale)
            fresh, _ = send(cavity(whole, received[way]), *terms, ALGEBRA.maximise, TILE)
            if ALGEBRA.damped:
                fresh = mix(old, fresh, image.damping, ALGEBRA.maximise)
            same = fresh == old  # both -inf included
            moved = tl.abs(tl.where(same, 0.0, fresh) - tl.where(same, 0.0, old)) > image.tolerance
        changed = tl.max((moved & (label < TILE.n_labels)).to(tl.int32), axis=2) > 0
        sent += (fresh,)
        changes += ((changed | sites.first_visit[:, None]) & real,)
    any_changed = reals[0] & False
    for way in tl.static_range(WAYS):
        changed = changes[way]
        target = image.messages + backs[way].to(tl.int64)[:, :, None] * TILE.n_labels + label
        tl.store(target, sent[way], mask=changed[:, :, None] & (label < TILE.n_labels))
        tl.store(dirty + others[way], theirs[way] | 1, mask=changed)
        any_changed |= changed
    return any_changed


@triton.jit
def add(whole, received, rho, edge, real, LINEAR: tl.constexpr):
    """Return a belief combined with a neighbour's message."""
    return whole * received if LINEAR else whole + message_sum(received, rho, edge, real)


@triton.jit
def _send_linear(cavity, pairs, image, slot, edge, real, TILE: tl.constexpr):
    """Return the linear-domain message of a cavity; features are exponentials of pairwise scores."""
    couplings = pairs.features + image * pairs.feature_image + edge * pairs.feature_edge
    label = tl.arange(0, TILE.labels)[None, None, :]
    total = tl.sum(cavity, axis=2, keep_dims=True)
    share = cavity / tl.where(real[:, :, None], total, 1.0)
    if TILE.potts:
        differ = tl.load(couplings, mask=real, other=0.0).to(cavity.dtype)[:, :, None]
        agree = tl.load(couplings + 1, mask=real, other=0.0).to(cavity.dtype)[:, :, None]
        # Repulsion: where one label has nearly all the mass, 1 minus its share cancels; sum the others instead.
        sure = share > 0.5
        rest = tl.sum(tl.where(sure, 0.0, share), axis=2, keep_dims=True)
        repelled = sure & (agree < differ)
        fresh = tl.where(repelled, differ * rest + agree * share, differ + (agree - differ) * share)
    else:
        end = tl.load(pairs.end + slot, mask=real, other=0).to(tl.int32)
        fresh = tl.zeros(share.shape, cavity.dtype)
        for a in range(TILE.n_labels):
            entry = tl.where(end[:, :, None] != 0, label * TILE.n_labels + a, a * TILE.n_labels + label)
            mask = real[:, :, None] & (label < TILE.n_labels)
            table = tl.load(couplings[:, :, None] + entry, mask=mask, other=0.0)
            fresh += of_label(share, a, TILE) * table.to(cavity.dtype)
    return fresh
