"""A labelling from max-product messages, site after site; see the reference.

A site waits only for those of its neighbours that come before it.  One program per image takes the order a block at a
time and labels, round after round, the sites of the block that wait for none: in breadth-first order on a grid, most
of a block in each round.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.messages import lanes, rows, slots_of, steps, table_row

_WARPS = 16  # with 16 lanes a thread: large blocks make few rounds


def decode_messages(model: Model, order: Any, messages: Any, labels: Any, lo: int, hi: int, copies: int = 1) -> None:
    """Fill ``labels`` (N, S) of images lo..hi in the given order; messages (N, 2E, L).

    Beyond the reference: image n has the pairwise terms of n // ``copies``.
    """
    n_sites, n_labels = model.unary.shape[1:]
    labels[lo:hi] = -1
    rank = torch.full((n_sites,), len(order), dtype=torch.int32, device=order.device)
    rank[order.long()] = torch.arange(len(order), dtype=torch.int32, device=order.device)
    _walk[(hi - lo,)](
        model.unary,
        model.features,
        model.tables,
        model.indptr,
        model.neighbour,
        model.edge,
        model.end,
        order,
        rank,
        messages,
        labels,
        n_sites,
        messages.shape[1],
        *steps(model.features),
        *steps(model.tables),
        copies,
        lo,
        len(order),
        POTTS=bool(model.potts),
        N_FEATURES=model.features.shape[2],
        **lanes(n_labels, 4 * _WARPS),
        num_warps=_WARPS,
    )


@triton.jit(do_not_specialize=["lo", "stop"])
def _walk(
    unary,
    features,
    tables,
    indptr,
    neighbour,
    edge,
    end,
    order,
    rank,
    messages,
    labels,
    n_sites,
    n_slots,
    feature_image,
    feature_edge,
    table_image,
    table_edge,
    copies,
    lo,
    stop,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    DEGREES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All positions of one image; ``rank`` (S,) is each site's position."""
    image = (lo + tl.program_id(0)).to(tl.int64)
    unary += image * n_sites * N_LABELS
    messages += image * n_slots * N_LABELS
    labels += image * n_sites
    features += image // copies * feature_image
    tables += image // copies * table_image
    label = tl.arange(0, LABELS)[None, None, :]
    next_position = 0
    while next_position < stop:
        position = next_position + tl.arange(0, BLOCK)
        waiting = position < stop
        site = tl.load(order + position, mask=waiting, other=0).to(tl.int64)
        start = tl.load(indptr + site, mask=waiting, other=0)
        degree = (tl.load(indptr + site + 1, mask=waiting, other=0) - start).to(tl.int32)
        widest = tl.max(degree, axis=0)
        own = rows(unary, site[:, None], waiting[:, None], -float("inf"), N_LABELS, LABELS)
        around = (neighbour, edge, rank, messages, position)
        slot, other_end, between, earlier, said = _around(around, start, degree, 0, N_LABELS, LABELS, DEGREES)
        left = tl.sum(waiting.to(tl.int32))
        while left > 0:
            ready = waiting
            scores = own
            first = 0
            while first < widest:
                if widest > DEGREES:
                    slot, other_end, between, earlier, said = _around(
                        around, start, degree, first, N_LABELS, LABELS, DEGREES
                    )
                theirs = tl.load(labels + other_end, mask=earlier & waiting[:, None], other=0).to(tl.int32)
                ready &= tl.min(theirs, axis=1) >= 0
                theirs = tl.maximum(theirs, 0)[:, :, None]
                weights = features + between * feature_edge
                if POTTS:
                    weight = tl.load(weights, mask=earlier, other=0.0)[:, :, None]
                    actual = tl.where(label == theirs, weight, 0.0)
                else:
                    turned = 1 - tl.load(end + slot, mask=earlier, other=0).to(tl.int32)
                    table = tables + between * table_edge
                    actual = table_row(weights, table, turned, earlier, theirs, N_FEATURES, N_LABELS, LABELS)
                scores += tl.sum(tl.where(earlier[:, :, None], actual, said), axis=1, keep_dims=True)
                first += DEGREES
            top = tl.max(scores, axis=2, keep_dims=True)
            scores = tl.where(top == -float("inf"), own, scores)
            top = tl.max(scores, axis=2, keep_dims=True)
            best = tl.min(tl.where(scores == top, label, LABELS), axis=2)
            tl.debug_barrier()  # threads may hold copies of a lane: all have read before any writes
            tl.store(labels + site[:, None], best, mask=ready[:, None])
            tl.debug_barrier()
            waiting &= ~ready
            left = tl.sum(waiting.to(tl.int32))
        next_position += BLOCK


@triton.jit
def _around(around, start, degree, first, N_LABELS: tl.constexpr, LABELS: tl.constexpr, DEGREES: tl.constexpr):
    """Slots ``first..``, the sites and edges there, which of them come earlier, and what the others say."""
    neighbour, edge, rank, messages, position = around
    slot, real = slots_of(start, degree, first, DEGREES)
    other_end = tl.load(neighbour + slot, mask=real, other=0)
    between = tl.load(edge + slot, mask=real, other=0).to(tl.int64)
    earlier = real & (tl.load(rank + other_end, mask=real, other=0) < position[:, None])
    said = rows(messages, slot, real & ~earlier, 0.0, N_LABELS, LABELS)
    return slot, other_end, between, earlier, said
