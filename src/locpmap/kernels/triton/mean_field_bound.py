"""The lower bound that mean field climbs; see the reference.  Sums are made in the beliefs' type."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.local_scores import (
    items_of,
    neighbours,
    pairs_of,
    potts_weights,
    sizes_of,
    slots_at,
    table_scores,
)


def mean_field_bound(
    model: Model, beliefs: torch.Tensor, terms: torch.Tensor, lo: int, hi: int, begin: int, stop: int
) -> None:
    """Fill ``terms`` (N, S): each site's own part and that of the edges that begin there; beliefs (N, S, L)."""
    sizes = sizes_of(model)
    arrays = (model.unary, beliefs, terms, model.order, pairs_of(model))
    grid = ((hi - lo) * triton.cdiv(stop - begin, sizes.items),)
    _bound[grid](*arrays, lo, begin, stop, terms.shape[1], sizes)


@triton.jit(do_not_specialize=["lo", "first", "last", "n_sites"])
def _bound(unary, beliefs, terms, order, pairs, lo, first, last, n_sites, SIZES: tl.constexpr):
    N_LABELS: tl.constexpr = SIZES.n_labels
    image, site, inside = items_of(tl.program_id(0), order, lo, first, last, SIZES.items)
    dtype: tl.constexpr = beliefs.dtype.element_ty
    label = tl.arange(0, SIZES.labels)[None, :]
    own = image * n_sites + site
    row = own[:, None] * N_LABELS + label
    q = tl.load(beliefs + row, mask=inside[:, None] & (label < N_LABELS), other=0.0)
    held = q > 0
    score = tl.load(unary + row, mask=held, other=0.0).to(dtype)
    parts = q * (score - tl.log(tl.where(held, q, 1.0)))

    begin, degree = neighbours(pairs, site, inside)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(begin, degree, step)
        ours = tl.where((there & (tl.load(pairs.end + slot) == 0))[:, None], q, 0.0)
        theirs = beliefs + (image * n_sites + tl.load(pairs.neighbour + slot)) * N_LABELS
        if SIZES.potts:
            joint = ours * tl.load(theirs[:, None] + label, mask=label < N_LABELS, other=0.0)
            parts += joint * potts_weights(pairs, image, slot).to(dtype)[:, None]
        else:
            for other in range(N_LABELS):
                joint = ours * tl.load(theirs + other)[:, None]
                score = table_scores(pairs, image, slot, other, SIZES).to(dtype)
                parts += joint * tl.where(joint > 0, score, 0.0)
        step += 1
    tl.store(terms + own, tl.sum(parts, axis=1).to(terms.dtype.element_ty), mask=inside)
