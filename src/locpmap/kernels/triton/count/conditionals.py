"""Conditional (Rao-Blackwell) probabilities, summed as integers in units of 2^-40; see the reference."""

import triton
import triton.language as tl

from locpmap.kernels import model as constants
from locpmap.kernels.model import Array, Model
from locpmap.kernels.triton.climb.potts_grid import Field, Lanes, images_apart, loads_around, support, weights
from locpmap.kernels.triton.local_scores import add_local_scores, pairs_of, sizes_of

SITES = 128  # sites per program on grids
UNIT = tl.constexpr(constants.UNIT)


def conditionals(model: Model, labels: Array, sums: Array, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` to sums (n, S, L) int64; labels (n, S, R) may have any strides."""
    n_images, n_sites, n_samples = labels.shape
    sizes = sizes_of(model)
    grid = (n_images * triton.cdiv(stop - begin, sizes.items),)
    where = (lo, begin, stop, n_sites, n_samples)
    _conditionals[grid](model.unary, labels, labels.stride(), sums, pairs_of(model), *where, sizes)


def grid_conditionals(
    unary: Array, right: Array, down: Array, labels: Array, sums: Array, begin: int, stop: int
) -> None:
    """Add the same as `conditionals` on a 4-connected Potts grid, without edge lists; unary (n, S, L).

    Potts weights are (1|n, H, W-1) to the right and (1|n, H-1, W) down.  A lane holds all labels of a site: 32 at most.
    """
    (n_images, _, n_labels), n_samples = unary.shape, labels.shape[2]
    height, width = right.shape[1], down.shape[2]
    apart = labels.stride(1)
    field = Field(right, images_apart(right), down, images_apart(down), height, width, 1, apart, 0, 0, width)
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
        scores = add_local_scores(own, around, strides[1], pairs, image, site, inside, SIZES, AXIS=1, FRESH=False)
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
        total += (tl.zeros([SITES], tl.int64),)
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
        shares = ()
        mass = tl.zeros([SITES], dtype)
        for k in tl.static_range(N_LABELS):
            shares += (tl.exp(scores[k] - top),)
            mass += shares[k]
        more = ()
        for k in tl.static_range(N_LABELS):
            more += (total[k] + ((shares[k] / mass).to(tl.float64) * UNIT + 0.5).to(tl.int64),)
        total = more
        r += 1
    for k in tl.static_range(N_LABELS):
        place = sums + own + k
        tl.store(place, tl.load(place, mask=at.inside, other=0) + total[k], mask=at.inside)
