"""Pairwise scores that neighbours add to the labels of a site: device functions, and the arguments that they take.

An item is a site of an image, or of one sample of it.  The scores of items are blocks (ITEMS, LABELS), or
(LABELS, ITEMS) where the labels' AXIS is 0.  LABELS is the number of labels rounded up to a power of two; nothing is
added to the padding.  A slot is a position in the concatenated neighbour lists, (2E,).
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from locpmap.kernels.likelihood import Scores
from locpmap.kernels.model import Model
from locpmap.kernels.reference.climb_blocks import ROUNDING


class Pairs(NamedTuple):
    """Pairwise terms and neighbour lists of a model, as kernel arguments; axes of length 1 have stride 0."""

    features: Any  # (1|N, 1|E, F)
    feature_image: int  # stride between images
    feature_edge: int  # stride between edges
    tables: Any  # (1|N, 1|E, F, L, L)
    table_image: int
    table_edge: int
    indptr: Any  # (S + 1,)
    neighbour: Any  # (2E,)
    edge: Any  # (2E,)
    end: Any  # (2E,)
    reverse: Any  # (2E,) of a `Model`, else None
    group: Any  # (E,) the table of each edge of `Scores`; None: edge e has table e


def pairs_of(model: Model | Scores) -> Pairs:
    """Return a model's pairwise terms and neighbour lists."""
    terms = (model.features, *strides_of(model.features), model.tables, *strides_of(model.tables))
    lists = (model.indptr, model.neighbour, model.edge, model.end)
    if isinstance(model, Scores):
        return Pairs(*terms, *lists, None, model.group)
    return Pairs(*terms, *lists, model.reverse, None)


class Sizes(NamedTuple):
    """Compile-time constants of kernels that process items (sites, or pairs of a site and a sample)."""

    potts: bool  # whether tables are the identity
    n_features: int
    n_labels: int
    labels: int  # n_labels rounded up to a power of two
    items: int  # items that a program processes together


def sizes_of(model: Model | Scores, block: int = 512, most: int = 512) -> Sizes:
    """Return the sizes for at most ``most`` items per step, and at most ``block`` items times labels."""
    n_labels = model.unary.shape[2]
    labels = 1 << (n_labels - 1).bit_length()
    return Sizes(bool(model.potts), model.features.shape[2], n_labels, labels, max(1, min(block // labels, most)))


@triton.jit
def items_of(tile, order, first, last, ITEMS: tl.constexpr):
    """Return a tile's image, its sites (ITEMS,) from positions first..last of the order, and which of them exist."""
    per_image = (last - first + ITEMS - 1) // ITEMS
    image = (tile // per_image).to(tl.int64)
    position = first + (tile % per_image) * ITEMS + tl.arange(0, ITEMS)
    inside = position < last
    return image, tl.load(order + position, mask=inside, other=0).to(tl.int64), inside


@triton.jit
def load_labels(place, stride, inside, SIZES: tl.constexpr):
    """Load the values of each label, at ``place`` (ITEMS,) plus multiples of ``stride``, as (LABELS, ITEMS).

    Masked entries are -inf.  Up to 32 labels are loaded one by one, so that one thread holds all labels of an item:
    otherwise the compiler distributes them over threads and converts between layouts.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    label = tl.arange(0, SIZES.labels)[:, None]
    if N_LABELS <= 32:
        scores = tl.full((SIZES.labels, place.shape[0]), float("-inf"), place.dtype.element_ty)
        for k in tl.static_range(N_LABELS):
            score = tl.load(place + k * stride, mask=inside, other=float("-inf"))
            scores = tl.where(label == k, score[None, :], scores)
        return scores
    else:
        held = inside[None, :] & (label < N_LABELS)
        return tl.load(place[None, :] + label * stride, mask=held, other=float("-inf"))


@triton.jit
def neighbours(pairs, site, inside):
    """Return the first slot of each item's neighbour list and its length, (ITEMS,); length 0 where not ``inside``."""
    begin = tl.load(pairs.indptr + site, mask=inside, other=0)
    return begin, (tl.load(pairs.indptr + site + 1, mask=inside, other=0) - begin).to(tl.int32)


@triton.jit
def slots_at(begin, degree, step):
    """Return which items have a neighbour number ``step``, and its slot; slot 0 for the other items.

    Slot 0 exists if any slot does, so loads by slot need no mask.  Masked loads that are combined with tables do not
    compile (Triton 3.6, "mask type matches ptr type").
    """
    there = step < degree
    return there, tl.where(there, begin + step, 0)


@triton.jit
def potts_weights(pairs, image, slot):
    """Return the Potts weights of the edges at these slots, (ITEMS,)."""
    edge = tl.load(pairs.edge + slot).to(tl.int64)
    return tl.load(pairs.features + image * pairs.feature_image + edge * pairs.feature_edge)


@triton.jit
def pair_scores(pairs, image, slot, own, other, SIZES: tl.constexpr):
    """Return the scores of label ``own`` at a slot's site with label ``other`` at its neighbour.

    The score is ``Σ_f features[f] · tables[f]``, or the Potts weight of equal labels.  It is 0 for slot -1 (no
    edge) and for labels beyond the last.  Slots and labels broadcast.  The first axis of an edge's tables is the label
    of the edge's first end, which may be either site.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    exists = slot >= 0
    edge = tl.load(pairs.edge + slot, mask=exists, other=0).to(tl.int64)
    feature = pairs.features + image * pairs.feature_image + edge * pairs.feature_edge
    if SIZES.potts:
        scores = tl.where(own == other, tl.load(feature, mask=exists, other=0.0), 0.0)
    else:
        is_first = tl.load(pairs.end + slot, mask=exists, other=0) == 0
        if pairs.group is not None:
            edge = tl.load(pairs.group + edge, mask=exists, other=0).to(tl.int64)
        table = pairs.tables + image * pairs.table_image + edge * pairs.table_edge
        cell = tl.where(is_first, own * N_LABELS + other, other * N_LABELS + own)
        known = exists & (own < N_LABELS) & (other < N_LABELS)
        scores = (cell * 0).to(pairs.tables.dtype.element_ty)
        for f in range(SIZES.n_features):
            score = tl.load(table + f * N_LABELS * N_LABELS + cell, mask=known, other=0.0)
            scores += tl.load(feature + f, mask=exists, other=0.0) * score
    return scores


@triton.jit
def add_local_scores(
    scores, around, pairs, image, site, inside, SIZES: tl.constexpr, AXIS: tl.constexpr, CACHE: tl.constexpr
):
    """Add to ``scores`` the pairwise scores of each label with the labels of the site's neighbours.

    Args:
        scores: (ITEMS, LABELS), or (LABELS, ITEMS) where AXIS is 0: perturbed or plain unaries.
        around: Pointers, scalar or (ITEMS,), to the label of site 0 in the item's image (and sample); the distance
            between the labels of consecutive sites: 1 for labels (N, S), R for (N, S, R); and blocks (S,), or None.
            Neighbours with label -1 or in the same block are ignored.
        pairs: :class:`Pairs`.
        image: Index of the image in features and tables, int64.
        site: (ITEMS,) int64.
        inside: (ITEMS,) which items exist.  The scores of the others stay unchanged, but their labels must be valid
            too, because the loads are not masked.
        SIZES: :class:`Sizes`.
        AXIS: Axis of the labels in ``scores``.
        CACHE: ".cg" if other programs of the same launch write labels, so that loads bypass the L1 cache; else "".
    """
    labels, stride, block_of = around
    begin, degree = neighbours(pairs, site, inside)
    label = tl.expand_dims(tl.arange(0, SIZES.labels), 1 - AXIS)
    step, most = 0, tl.max(degree, axis=0)
    if block_of is not None:
        block = tl.load(block_of + tl.where(inside, site, 0))
    while step < most:
        # Four Potts weights are loaded together, so that their latencies overlap.
        for ahead in tl.static_range(4 if SIZES.potts else 1):
            there, slot = slots_at(begin, degree, step + ahead)
            near = tl.load(pairs.neighbour + slot).to(tl.int64)
            other = tl.load(labels + near * stride, cache_modifier=CACHE).to(tl.int32)
            there &= other >= 0
            if block_of is not None:
                there &= tl.load(block_of + near) != block
            slot = tl.expand_dims(slot, AXIS)
            other = tl.expand_dims(tl.maximum(other, 0), AXIS)  # label -1 would be read before the tables
            gain = pair_scores(pairs, image, slot, label, other, SIZES).to(scores.dtype)
            scores += tl.where(tl.expand_dims(there, AXIS), gain, 0.0)
        step += 4 if SIZES.potts else 1
    return scores


@triton.jit
def local_scores(unary, around, pairs, n, i, valid, SIZES: tl.constexpr):
    """Return the unaries of sites plus the pairwise scores with their neighbours' labels, (ITEMS, LABELS).

    Labels beyond L score -inf.  ``unary`` points to the image's site 0; ``around`` as in `add_local_scores`.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    k = tl.arange(0, SIZES.labels)[None, :]
    held = valid[:, None] & (k < N_LABELS)
    scores = tl.load(unary + i[:, None] * N_LABELS + k, mask=held, other=0.0)
    scores = add_local_scores(scores, around, pairs, n, i, valid, SIZES, 1, "")
    return tl.where(k < N_LABELS, scores, float("-inf"))


@triton.jit
def add_joint_scores(total, plan, pairs, unary, labels, apart, image, b, state, n_sites, SIZES: tl.constexpr):
    """Add to ``total`` the scores of joint labellings ``state`` of block b, given the labels around it.

    ``unary`` and ``labels`` point to the image's site 0; labels of consecutive sites are ``apart`` elements apart.
    ``labels`` may be a block of pointers that broadcasts with ``state`` to the shape of ``total``.  A site with label
    -1 is void: it has no edges, and labellings with a label other than 0 there score -inf.
    """
    family = tl.load(plan.family + b).to(tl.int64) * n_sites
    t, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
    while t < stop:
        i = tl.load(plan.site + t).to(tl.int64)
        stride = tl.load(plan.stride + family + i)
        own, mine = (state // stride) % SIZES.n_labels, tl.load(labels + i * apart)
        score = tl.load(unary + i * SIZES.n_labels + own)
        total += tl.where(mine >= 0, score, tl.where(own > 0, float("-inf"), 0.0))
        slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
        while slot < last:
            near = tl.load(pairs.neighbour + slot).to(tl.int64)
            outside = tl.load(plan.block_of + family + near) != b
            near_stride = tl.load(plan.stride + family + near)
            if outside | (near_stride > stride):  # an edge inside counts at its later site
                theirs = tl.load(labels + near * apart).to(tl.int32)
                known = tl.where((mine >= 0) & (theirs >= 0), slot, -1)
                theirs = tl.where(outside, theirs, (state // near_stride) % SIZES.n_labels)
                total += pair_scores(pairs, image, known, own, theirs, SIZES)
            slot += 1
        t += 1
    return total


@triton.constexpr_function
def rounding(dtype: tl.dtype) -> float:
    """Return the smallest relative improvement of a score that counts."""
    return 1e-6 if dtype == tl.float32 else ROUNDING


@triton.jit
def improves(new, old):
    """Return whether ``new`` exceeds ``old`` by more than rounding; any finite score improves on -inf."""
    allowed = old > float("-inf")
    score = tl.where(allowed, old, 0.0)
    return new > tl.where(allowed, score + rounding(old.dtype) * (1 + tl.abs(score)), float("-inf"))


def strides_of(terms: Any) -> tuple[int, int]:
    """Return the strides between images and between edges; 0 along an axis of length 1."""
    image, edge = (terms.stride(axis) if terms.shape[axis] > 1 else 0 for axis in (0, 1))
    return image, edge
