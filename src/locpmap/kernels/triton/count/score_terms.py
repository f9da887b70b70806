"""The score of a labelling, split into terms per site; see the reference.  Sums are float64."""

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.local_scores import items_of, neighbours, pairs_of, potts_weights, sizes_of, slots_at

ITEMS = 256  # sites per program


def score_terms(model: Model, labels: Array) -> Array:
    """Return each site's unary score plus the scores of edges that begin there, (N, S) float64; labels (N, S)."""
    n_images, n_sites = labels.shape
    terms = torch.empty((n_images, n_sites), dtype=torch.float64, device=labels.device)
    grid = (n_images * triton.cdiv(n_sites, ITEMS),)
    sizes = sizes_of(model)._replace(items=ITEMS)
    _add_up[grid](model.unary, pairs_of(model), model.order, labels, terms, n_sites, sizes)
    return terms


@triton.jit
def _add_up(unary, pairs, order, labels, terms, n_sites, SIZES: tl.constexpr):
    N_LABELS: tl.constexpr = SIZES.n_labels
    image, site, inside = items_of(tl.program_id(0), order, 0, n_sites, SIZES.items)
    labels += image * n_sites
    own = tl.load(labels + site).to(tl.int64)
    dtype = terms.dtype.element_ty
    total = tl.load(unary + (image * n_sites + site) * N_LABELS + own).to(dtype)
    start, degree = neighbours(pairs, site, inside)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(start, degree, step)
        there &= tl.load(pairs.end + slot) == 0  # count each edge once
        other = tl.load(labels + tl.load(pairs.neighbour + slot)).to(tl.int64)
        if SIZES.potts:
            score = tl.where(own == other, potts_weights(pairs, image, slot), 0.0).to(dtype)
        else:
            edge = tl.load(pairs.edge + slot).to(tl.int64)
            feature = pairs.features + image * pairs.feature_image + edge * pairs.feature_edge
            entry = pairs.tables + image * pairs.table_image + edge * pairs.table_edge + own * N_LABELS + other
            score = tl.zeros(own.shape, dtype)
            for f in range(SIZES.n_features):
                score += tl.load(feature + f).to(dtype) * tl.load(entry + f * N_LABELS * N_LABELS).to(dtype)
        total += tl.where(there, score, 0.0)
        step += 1
    tl.store(terms + image * n_sites + site, total, mask=inside)
