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
from locpmap.kernels.triton.messages import rows, steps, table_row

_LANES = 1024


def decode_messages(model: Model, order: Any, messages: Any, labels: Any, lo: int, hi: int) -> None:
    """Fill ``labels`` (N, S) of images lo..hi in the given order; messages (N, 2E, L)."""
    n_sites, n_labels = model.unary.shape[1:]
    labels[lo:hi] = -1
    rank = torch.full((n_sites,), len(order), dtype=torch.int32, device=order.device)
    rank[order.long()] = torch.arange(len(order), dtype=torch.int32, device=order.device)
    padded = triton.next_power_of_2(n_labels)
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
        lo,
        len(order),
        POTTS=bool(model.potts),
        N_FEATURES=model.features.shape[2],
        N_LABELS=n_labels,
        LABELS=padded,
        BLOCK=max(1, _LANES // padded),
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
    lo,
    stop,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All positions of one image; ``rank`` (S,) is each site's position."""
    image = (lo + tl.program_id(0)).to(tl.int64)
    unary += image * n_sites * N_LABELS
    messages += image * n_slots * N_LABELS
    labels += image * n_sites
    features += image * feature_image
    tables += image * table_image
    label = tl.arange(0, LABELS)[None, None, :]
    next_position = 0
    while next_position < stop:
        position = next_position + tl.arange(0, BLOCK)[:, None]
        waiting = position < stop
        site = tl.load(order + position, mask=waiting, other=0).to(tl.int64)
        start = tl.load(indptr + site, mask=waiting, other=0)
        degree = tl.load(indptr + site + 1, mask=waiting, other=0) - start
        widest = tl.max(degree).to(tl.int32)
        own = rows(unary, site, waiting, -float("inf"), N_LABELS, LABELS)
        left = tl.sum(waiting.to(tl.int32))
        while left > 0:
            ready = waiting
            scores = own
            first = 0
            while first < widest:  # one slot of each site at a time: sums in the reference's order
                slot = start + first
                real = waiting & (first < degree)
                other_end = tl.load(neighbour + slot, mask=real, other=0)
                between = tl.load(edge + slot, mask=real, other=0).to(tl.int64)
                earlier = real & (tl.load(rank + other_end, mask=real, other=0) < position)
                theirs = tl.load(labels + other_end, mask=earlier, other=0).to(tl.int32)
                ready &= theirs >= 0
                theirs = tl.maximum(theirs, 0)[:, :, None]
                weights = features + between * feature_edge
                if POTTS:
                    weight = tl.load(weights, mask=earlier, other=0.0)[:, :, None]
                    actual = tl.where(label == theirs, weight, 0.0)
                else:
                    turned = 1 - tl.load(end + slot, mask=earlier, other=0).to(tl.int32)
                    table = tables + between * table_edge
                    actual = table_row(weights, table, turned, earlier, theirs, N_FEATURES, N_LABELS, LABELS)
                said = rows(messages, slot, real, 0.0, N_LABELS, LABELS)
                scores += tl.where(earlier[:, :, None], actual, said)
                first += 1
            top = tl.max(scores, axis=2, keep_dims=True)
            scores = tl.where(top == -float("inf"), own, scores)
            top = tl.max(scores, axis=2, keep_dims=True)
            best = tl.min(tl.where(scores == top, label, LABELS), axis=2)
            tl.debug_barrier()  # threads may hold copies of a lane: all have read before any writes
            tl.store(labels + site, best, mask=ready)
            tl.debug_barrier()
            waiting &= ~ready
            left = tl.sum(waiting.to(tl.int32))
        next_position += BLOCK
