"""Pieces of the Potts climb: which sites and samples a tile holds, what lies around them, and what is known of a site.

The labels of several consecutive samples lie side by side in a word, a field each.  A lane is a site of one colour and
a word of samples; a tile is BLOCK lanes of one colour, words fastest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl


class Sizes(NamedTuple):
    """What a climb is compiled for: one constant."""

    start: int  # where climbs begin
    n_labels: int
    room: int  # labels whose leading bytes of noise come from one call of Philox, with those of other samples
    pack: int  # samples in a word
    bits: int  # of a label
    tile: int  # lanes of a tile
    visit: int  # pairs visited at a time
    counters: int  # numbers that a team counts with


class Field(NamedTuple):
    """The grid of one climb and its weights, as kernels take them: one argument."""

    right: Any  # (1|n, H, W-1)
    right_apart: int  # from one image's weights to the next's; 0 where all share them
    down: Any  # (1|n, H-1, W)
    down_apart: int
    height: int
    width: int
    n_words: int  # of samples
    site_apart: int  # words from one site's labels to the next's
    parity: int  # of row + column at the grid's corner, in the whole image
    first_site: int  # the corner's number in the whole image
    full_width: int


class Draw(NamedTuple):
    """The key and the counters of the noise."""

    k0: int
    k1: int
    first_image: int
    first_sample: int


class Drawn(NamedTuple):
    """What first visits leave for later ones: scratch, (T, 2, ..) by colour, numbered as lanes."""

    scores: Any  # two labels: (T, 2, PACK, lanes) by how much label 1 is ahead without its neighbours
    firsts: Any  # more: (T, 2, lanes) words of the labels whose clocks ring first
    ticks: Any  # (T, 2, lanes) words of the leading bytes of these clocks' uniforms


class Image(NamedTuple):
    """The climbs on one image."""

    terms: Any  # `Terms`
    draw: Any  # `Draw`
    field: Any  # `Field`
    words: Any  # its labels in words
    labels: Any  # the same one by one
    changed: Any  # (R,) the last sweep that changed each sample
    n_samples: Any
    n: Any  # its number
    items: Any  # lanes of a colour
    scale: Any  # the temperature


class Terms(NamedTuple):
    """What the noise needs of every site: scratch that `describe_sites` fills."""

    log_p: Any  # (T, S, L) log softmax(unary / temperature)
    cumulative: Any  # (T, S, L) of p, the likeliest label first, then in natural order; 2 at the last possible one
    facts: Any  # (T, S) the likeliest label, plus 2^16 times the number of allowed labels


class Lanes(NamedTuple):
    """The lanes of a tile, as `lanes` finds them: scalars and blocks (BLOCK,)."""

    inside: Any  # which there are
    number: Any  # the lane's among those of its colour
    row: Any  # of the site
    column: Any
    site: Any  # its number in the image
    word: Any  # of samples


def images_apart(weights: torch.Tensor) -> int:
    """From one image's weights to the next's; 0 where all share them."""
    return int(weights.stride(0)) if weights.shape[0] > 1 else 0


@triton.jit
def lanes(field, tile, colour, BLOCK: tl.constexpr):
    """The lanes of a tile; rows have one site of a colour more than they hold where the width is odd."""
    per_row = (field.width + 1) // 2
    start = tile * BLOCK
    place = start // field.n_words
    row = place // per_row
    # Within a tile numbers are small, and a product with the inverse, rounded down, is the quotient.
    lane = start - place * field.n_words + tl.arange(0, BLOCK)
    step = ((lane.to(tl.float32) + 0.5) * (1.0 / field.n_words)).to(tl.int32)
    word = lane - step * field.n_words
    # Put together anew, so that the compiler sees no run of neighbours: blocks then have one layout throughout.
    number = (place + step) * field.n_words + word
    step += place - row * per_row
    below = ((step.to(tl.float32) + 0.5) * (1.0 / per_row)).to(tl.int32)
    row += below
    column = 2 * (step - below * per_row) + ((row + colour + field.parity) & 1)
    inside = (row < field.height) & (column < field.width)
    return Lanes(inside, number, row, column, row * field.width + column, word)


@triton.jit
def lanes_at(field, number, inside, colour):
    """Return the lanes with these numbers, anywhere."""
    per_row = (field.width + 1) // 2
    place = number // field.n_words
    row = place // per_row
    column = 2 * (place - row * per_row) + ((row + colour + field.parity) & 1)
    return Lanes(inside, number, row, column, row * field.width + column, number - place * field.n_words)


@triton.jit
def keys_of(image, at, PACK: tl.constexpr):
    """Return what keys the noise of lanes: the image, the first sample of each word, and the site."""
    draw, field = image.draw, image.field
    site = field.first_site + at.row.to(tl.int64) * field.full_width + at.column
    return draw.first_image + image.n, draw.first_sample + at.word.to(tl.int64) * PACK, site


@triton.jit
def around(field, labels_ptr, at):
    """Where the lanes' words of labels are, and the words to the left, to the right, above and below (or 0)."""
    across, along = field.site_apart, field.width * field.site_apart
    y = labels_ptr + at.site.to(tl.int64) * across + at.word
    return y, loads_around(field, y, at, across, along, ".cg")


@triton.jit
def loads_around(field, y, at, across, along, CACHE: tl.constexpr):
    """What lies to the left, to the right, above and below of these places (0 where nothing is).

    By way of the second cache (CACHE is ".cg"), unless nobody writes there meanwhile.
    """
    left = tl.load(y - across, mask=at.inside & (at.column > 0), other=0, cache_modifier=CACHE)
    right = tl.load(y + across, mask=at.inside & (at.column + 1 < field.width), other=0, cache_modifier=CACHE)
    up = tl.load(y - along, mask=at.inside & (at.row > 0), other=0, cache_modifier=CACHE)
    down = tl.load(y + along, mask=at.inside & (at.row + 1 < field.height), other=0, cache_modifier=CACHE)
    return left, right, up, down


@triton.jit
def weights(field, n, at, dtype: tl.constexpr):
    """Weights of the edges to the left, to the right, above and below; 0 where there is none."""
    beside = field.right + n * field.right_apart + (at.site - at.row)
    below = field.down + n * field.down_apart + at.site
    left = tl.load(beside - 1, mask=at.inside & (at.column > 0), other=0.0)
    right = tl.load(beside, mask=at.inside & (at.column + 1 < field.width), other=0.0)
    up = tl.load(below - field.width, mask=at.inside & (at.row > 0), other=0.0)
    down = tl.load(below, mask=at.inside & (at.row + 1 < field.height), other=0.0)
    return left.to(dtype), right.to(dtype), up.to(dtype), down.to(dtype)


@triton.jit
def fields_of(words, j, BITS: tl.constexpr):
    """The labels of sample j of four words."""
    left, right = field_of(words[0], j, BITS), field_of(words[1], j, BITS)
    return left, right, field_of(words[2], j, BITS), field_of(words[3], j, BITS)


@triton.jit
def field_of(word, j, BITS: tl.constexpr):
    """The label of sample j of a word, without its mark."""
    return ((word >> (j * BITS)) & ((1 << (BITS - 1)) - 1)).to(tl.int32)


@triton.jit
def support(k, near, weight):
    """What the four neighbours, by their labels and weights, add to the score of label k."""
    beside = tl.where(near[0] == k, weight[0], 0.0) + tl.where(near[1] == k, weight[1], 0.0)
    return beside + tl.where(near[2] == k, weight[2], 0.0) + tl.where(near[3] == k, weight[3], 0.0)


@triton.jit
def lead(near, weight):
    """Two labels: what the neighbours add to the score of label 1 beyond that of label 0."""
    beside = tl.where(near[0] > 0, weight[0], -weight[0]) + tl.where(near[1] > 0, weight[1], -weight[1])
    return beside + tl.where(near[2] > 0, weight[2], -weight[2]) + tl.where(near[3] > 0, weight[3], -weight[3])


@triton.jit(noinline=True)
def describe_sites(unary_ptr, terms, first, n_sites, scale, SIZES: tl.constexpr):
    """Fill the terms of sites first .. first + BLOCK of an image; pointers are at those of its first site."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    BLOCK: tl.constexpr = SIZES.tile
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    site = first + tl.arange(0, BLOCK)
    inside = site < n_sites
    row = site.to(tl.int64) * N_LABELS
    top = tl.full([BLOCK], float("-inf"), dtype)
    best = tl.zeros([BLOCK], tl.int32)
    allowed = tl.zeros([BLOCK], tl.int32)
    for k in range(N_LABELS):
        score = tl.load(unary_ptr + row + k, mask=inside, other=0.0)
        best = tl.where(score > top, k, best)
        top = tl.maximum(top, score)
        allowed += (score > float("-inf")).to(tl.int32)
    tl.store(terms.facts + site, best + allowed * 65536, mask=inside)
    if N_LABELS > 2:
        total = tl.zeros([BLOCK], dtype)
        last = tl.full([BLOCK], -1, tl.int32)  # the last label beside the likeliest that is possible
        for k in range(N_LABELS):
            p = tl.exp((tl.load(unary_ptr + row + k, mask=inside, other=0.0) - top) / scale)
            total += p
            last = tl.where((p > 0.0) & (k != best), k, last)
        log_total = tl.log(total)
        share = 1.0 / total
        run = share
        for k in range(N_LABELS):
            log_p = (tl.load(unary_ptr + row + k, mask=inside, other=0.0) - top) / scale - log_total
            tl.store(terms.log_p + row + k, log_p, mask=inside)
            run += tl.where(k == best, 0.0, tl.exp(log_p))
            end = tl.where(last < 0, best, last) == k
            tl.store(terms.cumulative + row + k, tl.where(end, 2.0, tl.where(k == best, share, run)), mask=inside)
