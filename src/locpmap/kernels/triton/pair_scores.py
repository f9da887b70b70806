"""The scores of labels on one edge, and which of two scores is better, for use inside kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pair_scores(pairs, image, slot, own, other, there, SIZES: tl.constexpr):
    """Return scores of labels ``own`` at a slot's site and ``other`` at the neighbour; they broadcast with ``there``.

    ``pairs`` is a `local_scores.Pairs`; ``image`` and ``slot`` are scalars.  Slot -1, no edge, scores 0.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    exists = slot >= 0
    edge = tl.load(pairs.edge + slot, mask=exists, other=0).to(tl.int64)
    feature_ptr = pairs.features + image * pairs.feature_image + edge * pairs.feature_edge
    if SIZES.potts:
        scores = tl.where(own == other, tl.load(feature_ptr, mask=exists, other=0.0), 0.0)
    else:
        is_first = tl.load(pairs.end + slot, mask=exists, other=0) == 0
        table_ptr = pairs.tables + image * pairs.table_image + edge * pairs.table_edge
        cell = tl.where(is_first, own * N_LABELS + other, other * N_LABELS + own)
        scores = (cell * 0).to(pairs.features.dtype.element_ty)
        for f in range(SIZES.n_features):
            score = tl.load(table_ptr + f * N_LABELS * N_LABELS + cell, mask=there & exists, other=0.0)
            scores += tl.load(feature_ptr + f, mask=exists, other=0.0) * score
    return scores


@triton.jit
def improves(new, old, ROUNDING: tl.constexpr):
    """Return whether a score is better by more than rounding; anything allowed is better than something forbidden."""
    allowed = old > float("-inf")
    score = tl.where(allowed, old, 0.0)
    return new > tl.where(allowed, score + ROUNDING * (1 + tl.abs(score)), float("-inf"))
