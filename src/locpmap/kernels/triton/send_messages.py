"""What sites send to some of their neighbours, in either algebra: the pieces of `sweep_messages`.

Blocks are (B, 1, K) for each way, a slot number of the lists or a direction of a grid, by itself: so a thread has the
same site and labels in all of them, and nothing changes hands between threads but sums over labels.  Two tuples go
through these functions: ``what`` is the model and the messages, ``where`` is the sites.
"""

from __future__ import annotations

import triton
import triton.language as tl

from locpmap.kernels.triton.grid_slots import edge_to, slot_to
from locpmap.kernels.triton.messages import cavity, heard, mix, of_label, rows, send_potts, send_table


@triton.jit
def slots_to(what, where, first, WAY: tl.constexpr):
    """The slots (B, 1) of neighbours number ``first + WAY``, and which of them there are."""
    _, _, shape, _, _, _, _, _, _, _ = what
    row, column, start, degree, active, _ = where
    if shape is None:
        slot, real = start + first + WAY, first + WAY < degree
    else:
        slot, real = slot_to(shape, row, column, WAY)
    return slot[:, None], (real & active)[:, None]


@triton.jit
def send(
    what,
    where,
    whole,
    first,
    LINEAR: tl.constexpr,
    MAXIMISE: tl.constexpr,
    POTTS: tl.constexpr,
    DAMPED: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    WAYS: tl.constexpr,
):
    """Messages to neighbours ``first..first + WAYS``; returns which sites changed any of them, (B, 1).

    On a grid these are all, and ``whole`` is only the sites' own.  What is loaded is loaded before any of it is used,
    and all of it is used before anything is stored: so loads wait together.
    """
    pairs, reverse, shape, messages, dirty, rho, features, tables, damped, most = what
    row, column, _, _, _, first_visit = where
    silence: tl.constexpr = 1.0 if LINEAR else 0.0
    label = tl.arange(0, LABELS)[None, None, :]
    dtype: tl.constexpr = whole.dtype
    reals, backs, others, edges, ends, received, olds, theirs = (), (), (), (), (), (), (), ()
    for way in tl.static_range(WAYS):
        slot, real = slots_to(what, where, first, way)
        if shape is None:
            back = tl.load(reverse + slot, mask=real, other=0)
            other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
            edge = tl.load(pairs.edge + slot, mask=real, other=0)
            end = tl.load(pairs.end + slot, mask=real, other=0).to(tl.int32)
        else:
            back, other_end, edge = edge_to(shape, row, column, way)
            back, other_end, edge = back[:, None], other_end[:, None], tl.where(real, edge[:, None], 0)
            end = edge  # nobody asks: a grid is walked by its shape only where the model is Potts
        reals += (real,)
        backs += (back,)
        others += (other_end,)
        edges += (edge.to(tl.int64),)
        ends += (end,)
        received += (rows(messages, slot, real, silence, N_LABELS, LABELS, ".cg"),)
        olds += (rows(messages, back, real, silence, N_LABELS, LABELS, ".cg"),)
        theirs += (tl.load(dirty + other_end, mask=real, other=0, cache_modifier=".cg"),)
    if shape is not None:
        for way in tl.static_range(WAYS):
            whole = add(whole, received[way], rho, edges[way], reals[way], LINEAR)
    sent, changes = (), ()
    for way in tl.static_range(WAYS):
        real, old, edge = reals[way], olds[way], edges[way]
        feature, table = features + edge * pairs.feature_edge, tables + edge * pairs.table_edge
        if LINEAR:
            fresh = _send_linear(whole / received[way], feature, ends[way], real, POTTS, N_LABELS, LABELS)
            fresh += damped * (old - fresh)
            moved = tl.abs(fresh - old) > most * fresh
        else:
            said = cavity(whole, received[way])
            scale = tl.full([1, 1, 1], 1.0, dtype)
            if rho is not None:
                scale = 1.0 / tl.load(rho + edge, mask=real, other=1.0).to(dtype)[:, :, None]
            if POTTS:
                weight = tl.load(feature, mask=real, other=0.0)[:, :, None]
                fresh, _ = send_potts(said, weight * scale, MAXIMISE, LABELS)
            else:
                fresh, _ = send_table(
                    said, feature, table, ends[way], real, scale, MAXIMISE, N_FEATURES, N_LABELS, LABELS
                )
            if DAMPED:
                fresh = mix(old, fresh, damped, MAXIMISE)
            same = fresh == old  # both -inf included
            moved = tl.abs(tl.where(same, 0.0, fresh) - tl.where(same, 0.0, old)) > most
        changed = tl.max((moved & (label < N_LABELS)).to(tl.int32), axis=2) > 0
        sent += (fresh,)
        changes += ((changed | first_visit[:, None]) & real,)
    any_changed = reals[0] & False
    for way in tl.static_range(WAYS):
        changed = changes[way]
        target = messages + backs[way].to(tl.int64)[:, :, None] * N_LABELS + label
        tl.store(target, sent[way], mask=changed[:, :, None] & (label < N_LABELS))
        tl.store(dirty + others[way], theirs[way] | 1, mask=changed)
        any_changed |= changed
    return any_changed


@triton.jit
def add(whole, received, rho, edge, real, LINEAR: tl.constexpr):
    """A belief and what a neighbour says."""
    return whole * received if LINEAR else whole + heard(received, rho, edge, real)


@triton.jit
def _send_linear(cavity, couplings, end, real, POTTS: tl.constexpr, N_LABELS: tl.constexpr, LABELS: tl.constexpr):
    """The message of a cavity through the ``couplings`` that (B, 1) points to."""
    label = tl.arange(0, LABELS)[None, None, :]
    total = tl.sum(cavity, axis=2, keep_dims=True)
    share = cavity / tl.where(real[:, :, None], total, 1.0)
    if POTTS:
        differ = tl.load(couplings, mask=real, other=0.0).to(cavity.dtype)[:, :, None]
        agree = tl.load(couplings + 1, mask=real, other=0.0).to(cavity.dtype)[:, :, None]
        # Repulsion: where one label has nearly all the mass, 1 minus its share cancels; add up what others have.
        sure = share > 0.5
        rest = tl.sum(tl.where(sure, 0.0, share), axis=2, keep_dims=True)
        repelled = sure & (agree < differ)
        fresh = tl.where(repelled, differ * rest + agree * share, differ + (agree - differ) * share)
    else:
        fresh = tl.zeros(share.shape, cavity.dtype)
        for a in range(N_LABELS):
            entry = tl.where(end[:, :, None] != 0, label * N_LABELS + a, a * N_LABELS + label)
            table = tl.load(couplings[:, :, None] + entry, mask=real[:, :, None] & (label < N_LABELS), other=0.0)
            fresh += of_label(share, a, LABELS) * table.to(cavity.dtype)
    return fresh
