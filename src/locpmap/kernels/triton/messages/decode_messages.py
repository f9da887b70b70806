"""A labelling decoded from max-product messages, site after site; see the reference.

A site waits only for its neighbours that precede it in the order.  One program per image processes the order in
blocks.  In each round it labels the sites of the block whose preceding neighbours are all labelled: in breadth-first
order on a grid, most of a block per round.
"""

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.local_scores import pair_scores, pairs_of
from locpmap.kernels.triton.messages.messages import lists_of, rows, slots_of, tile_of

_WARPS = 16  # 16 lanes per thread: large blocks need few rounds


def decode_messages(model: Model, order: Array, messages: Array, labels: Array, copies: int = 1) -> None:
    """Fill ``labels`` (N, S) in the given order; image n has the pairwise terms of image ``n // copies``."""
    labels.fill_(-1)
    rank = torch.full(labels.shape[1:], len(order), dtype=torch.int32, device=order.device)
    rank[order.long()] = torch.arange(len(order), dtype=torch.int32, device=order.device)
    arrays = (model.unary, pairs_of(model), order, rank, messages, labels)
    sizes = (labels.shape[1], messages.shape[1], copies, len(order))
    _walk[(len(labels),)](*arrays, *sizes, tile_of(model, 4 * _WARPS), num_warps=_WARPS)


@triton.jit(do_not_specialize=["stop"])
def _walk(unary, pairs, order, rank, messages, labels, n_sites, n_slots, copies, stop, TILE: tl.constexpr):
    """Label all sites of one image; ``rank`` (S,) is each site's position in the order."""
    image = tl.program_id(0).to(tl.int64)
    unary += image * n_sites * TILE.n_labels
    messages += image * n_slots * TILE.n_labels
    labels += image * n_sites
    label = tl.arange(0, TILE.labels)[None, None, :]
    next_position = 0
    while next_position < stop:
        position = next_position + tl.arange(0, TILE.block)
        site, waiting, start, degree = lists_of(pairs, order, position, stop)
        widest = tl.max(degree, axis=0)
        own = rows(unary, site[:, None], waiting[:, None], -float("inf"), TILE)
        left = tl.sum(waiting.to(tl.int32))
        while left > 0:
            ready = waiting
            scores = own
            first = 0
            while first < widest:
                slot, real = slots_of(start, degree, first, TILE)
                other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
                earlier = real & (tl.load(rank + other_end, mask=real, other=0) < position[:, None])
                said = rows(messages, slot, real & ~earlier, 0.0, TILE)
                theirs = tl.load(labels + other_end, mask=earlier & waiting[:, None], other=0).to(tl.int32)
                ready &= tl.min(theirs, axis=1) >= 0
                theirs = tl.maximum(theirs, 0)[:, :, None]
                known = tl.where(earlier, slot, -1)[:, :, None]
                actual = pair_scores(pairs, image // copies, known, label, theirs, TILE)
                scores += tl.sum(tl.where(earlier[:, :, None], actual, said), axis=1, keep_dims=True)
                first += TILE.degrees
            top = tl.max(scores, axis=2, keep_dims=True)
            scores = tl.where(top == -float("inf"), own, scores)
            top = tl.max(scores, axis=2, keep_dims=True)
            best = tl.min(tl.where(scores == top, label, TILE.labels), axis=2)
            tl.debug_barrier()  # threads may hold copies of a lane: all must read before any writes
            tl.store(labels + site[:, None], best, mask=ready[:, None])
            tl.debug_barrier()
            waiting &= ~ready
            left = tl.sum(waiting.to(tl.int32))
        next_position += TILE.block
