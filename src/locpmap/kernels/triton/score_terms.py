"""The score of a labelling, split over the sites; see the reference.  Sums are made in the terms' type."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.local_scores import neighbours, pairs_of, potts_weights, slots_at

_BLOCK = 256


def score_terms(model: Model, labels: Any, terms: Any, lo: int, hi: int, begin: int, stop: int) -> None:
    """Fill ``terms`` (N, S): each site's unary score and the scores of the edges that begin there; labels (N, S)."""
    blocks = triton.cdiv(stop - begin, _BLOCK)
    n_sites, n_labels = model.unary.shape[1:]
    arrays = (model.unary, pairs_of(model), model.order, labels, terms)
    sizes = {"POTTS": bool(model.potts), "N_FEATURES": model.features.shape[2], "N_LABELS": n_labels, "BLOCK": _BLOCK}
    _add_up[((hi - lo) * blocks,)](*arrays, n_sites, lo, begin, stop, blocks, **sizes)


@triton.jit(do_not_specialize=["lo", "begin", "stop", "blocks"])
def _add_up(
    unary,
    pairs,
    order,
    labels,
    terms,
    n_sites,
    lo,
    begin,
    stop,
    blocks,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK positions of one image."""
    image = (lo + tl.program_id(0) // blocks).to(tl.int64)
    position = begin + tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = position < stop
    site = tl.load(order + position, mask=inside, other=0).to(tl.int64)
    labels += image * n_sites
    own = tl.load(labels + site).to(tl.int64)
    dtype = terms.dtype.element_ty
    total = tl.load(unary + (image * n_sites + site) * N_LABELS + own).to(dtype)
    start, degree = neighbours(pairs, site, inside)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(start, degree, step)
        there &= tl.load(pairs.end + slot) == 0  # each edge once
        other = tl.load(labels + tl.load(pairs.neighbour + slot)).to(tl.int64)
        if POTTS:
            score = tl.where(own == other, potts_weights(pairs, image, slot), 0.0).to(dtype)
        else:
            edge = tl.load(pairs.edge + slot).to(tl.int64)
            feature = pairs.features + image * pairs.feature_image + edge * pairs.feature_edge
            entry = pairs.tables + image * pairs.table_image + edge * pairs.table_edge + own * N_LABELS + other
            score = tl.zeros([BLOCK], dtype)
            for f in range(N_FEATURES):
                score += tl.load(feature + f).to(dtype) * tl.load(entry + f * N_LABELS * N_LABELS).to(dtype)
        total += tl.where(there, score, 0.0)
        step += 1
    tl.store(terms + image * n_sites + site, total, mask=inside)
