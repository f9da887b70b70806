"""Statistics of label maps: votes and conditional (Rao-Blackwell) probabilities; see the reference.

Each lane of `votes` handles one site and counts eight labels at a time, in the bytes of a 64-bit word.  Conditional
probabilities are summed as integers in units of 2^-40.
"""

import torch
import triton
import triton.language as tl

from locpmap.kernels import model as constants
from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.climb.potts_grid import Field, Lanes, loads_around, support, weights
from locpmap.kernels.triton.local_scores import add_local_scores, pairs_of, sizes_of

SITES = 128  # per program of `votes` and `grid_conditionals`
MOST = tl.constexpr(255)  # limit of samples counted in bytes before they are added to the totals
UNIT = tl.constexpr(constants.UNIT)


def votes(labels: torch.Tensor, totals: torch.Tensor, begin: int, stop: int) -> None:
    """Add 1 to ``totals[n, i, labels[n, i, s]]``; labels (n, S, R) may have any strides."""
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * -(-(stop - begin) // SITES),)
    _votes[grid](labels, labels.stride(), totals, begin, stop, n_sites, n_samples, totals.shape[2], SITES)


@triton.jit(do_not_specialize=["begin", "stop"])
def _votes(labels, strides, totals, begin, stop, n_sites, n_samples, N_LABELS: tl.constexpr, SITES: tl.constexpr):
    per_image = (stop - begin + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = (begin + (tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)).to(tl.int64)
    inside, own = site < stop, labels + n * strides[0] + site * strides[1]
    first = 0
    while first < n_samples:
        last = tl.minimum(first + MOST, n_samples)
        for g in range((N_LABELS + 7) // 8):
            counts = tl.zeros([SITES], tl.int64)  # of labels 8g..8g + 7, one per byte
            r = first
            while r < last:
                label = tl.load(own + r * strides[2], mask=inside, other=0).to(tl.int64) - g * 8
                counts += tl.where((label >= 0) & (label < 8), tl.full([SITES], 1, tl.int64) << ((label & 7) * 8), 0)
                r += 1
            for m in tl.static_range(8):
                there = inside & (g * 8 + m < N_LABELS)
                place = totals + (n * n_sites + site) * N_LABELS + g * 8 + m
                count = ((counts >> (m * 8)) & 255).to(totals.dtype.element_ty)
                tl.store(place, tl.load(place, mask=there, other=0) + count, mask=there)
        first += MOST


def conditionals(model: Model, labels: Array, sums: Array, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` to sums (n, S, L) int64; labels (n, S, R) may have any strides."""
    n_images, n_sites, n_samples = labels.shape
    sizes = sizes_of(model)
    grid = (n_images * triton.cdiv(stop - begin, sizes.items),)
    where = (lo, begin, stop, n_sites, n_samples)
    _conditionals[grid](model.unary, labels, labels.stride(), sums, pairs_of(model), *where, sizes)


def grid_conditionals(unary: Array, field: Field, labels: Array, sums: Array, begin: int, stop: int) -> None:
    """Add the same as `conditionals` on a grid or volume with Potts weights, without edge lists; unary (n, S, L).

    A lane holds all labels of a site: 32 at most.  ``sums`` are integers, or have the dtype of the unaries.  Such sums
    are of probabilities, added in the order of the samples, so that rounding does not depend on their division.
    """
    (n_images, _, n_labels), n_samples = unary.shape, labels.shape[2]
    field = field._replace(site_apart=labels.stride(1))
    grid = (n_images * -(-(stop - begin) // SITES),)
    _grid_conditionals[grid](unary, field, labels, labels.stride(), sums, begin, stop, n_samples, n_labels, SITES)


@triton.jit(do_not_specialize=["lo", "begin", "stop"])
def _conditionals(unary, labels, strides, sums, pairs, lo, begin, stop, n_sites, n_samples, SIZES: tl.constexpr):
    ITEMS: tl.constexpr = SIZES.items
    LABELS: tl.constexpr = SIZES.labels
    per_image = (stop - begin + ITEMS - 1) // ITEMS
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = (begin + (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS)).to(tl.int64)
    inside = site < stop
    label = tl.arange(0, LABELS)[None, :]
    held = inside[:, None] & (label < SIZES.n_labels)
    image = lo + n
    row = unary + (image * n_sites + site)[:, None] * SIZES.n_labels + label
    own = tl.load(row, mask=held, other=float("-inf"))
    total = tl.zeros([ITEMS, LABELS], tl.int64)
    r = 0
    while r < n_samples:
        around = labels + n * strides[0] + r * strides[2]
        scores = add_local_scores(own, (around, strides[1], None), pairs, image, site, inside, SIZES, 1, "")
        top = tl.max(scores, axis=1)
        # Where forbidden pairs exclude every label, the sample's own label gets probability 1.
        stuck = top == float("-inf")
        mine = tl.load(around + site * strides[1], mask=inside, other=0).to(tl.int32)
        mass = tl.exp(scores - tl.where(stuck, 0.0, top)[:, None])
        mass = tl.where(stuck[:, None] & (label == mine[:, None]), 1.0, mass)
        p = (mass / tl.sum(mass, axis=1)[:, None]).to(tl.float64)
        total += (p * UNIT + 0.5).to(tl.int64)
        r += 1
    place = sums + (n * n_sites + site)[:, None] * SIZES.n_labels + label
    tl.store(place, tl.load(place, mask=held, other=0) + total, mask=held)


@triton.jit(do_not_specialize=["begin", "stop", "n_samples"])
def _grid_conditionals(
    unary_ptr, field, labels, strides, sums, begin, stop, n_samples, N_LABELS: tl.constexpr, SITES: tl.constexpr
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    per_image = (stop - begin + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = begin + (tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)
    row = site // field.width
    at = Lanes(site < stop, site, row, site - row * field.width, site, site)
    weight = weights(field, n, at, dtype)
    own = (n * field.height * field.width + site) * N_LABELS
    unary, total = (), ()
    for k in tl.static_range(N_LABELS):
        unary += (tl.load(unary_ptr + own + k, mask=at.inside, other=0.0),)
        total += (tl.load(sums + own + k, mask=at.inside, other=0),)
    across, along = field.site_apart, field.width * field.site_apart
    y = labels + n * strides[0] + site.to(tl.int64) * across
    r = 0
    while r < n_samples:
        near = loads_around(field, y + r * strides[2], at, across, along, "")
        scores = ()
        top = tl.full([SITES], float("-inf"), dtype)
        for k in tl.static_range(N_LABELS):
            scores += (unary[k] + support(k, near, weight),)
            top = tl.maximum(top, scores[k])
        top = tl.where(top > float("-inf"), top, 0.0)  # masked sites may lose their only label
        shares = ()
        mass = tl.zeros([SITES], dtype)
        for k in tl.static_range(N_LABELS):
            shares += (tl.exp(scores[k] - top),)
            mass += shares[k]
        more = ()
        for k in tl.static_range(N_LABELS):
            share = shares[k] / tl.maximum(mass, 1.0)
            if sums.dtype.element_ty == tl.int64:
                more += (total[k] + (share.to(tl.float64) * UNIT + 0.5).to(tl.int64),)
            else:
                more += (total[k] + share,)
        total = more
        r += 1
    for k in tl.static_range(N_LABELS):
        tl.store(sums + own + k, total[k], mask=at.inside)
