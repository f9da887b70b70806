"""Building blocks of Potts climbs: sites and samples of a tile, their neighbours, and the description of a site.

The planes of a volume are read as one grid, one below the other.  Rows of its sites are numbered through all planes.

The labels of several consecutive samples are packed into a word, each in its own bit field.  A lane is a site of one
colour with a word of samples, a pair is a lane with one sample of its word.  A tile is BLOCK lanes of one colour; words
vary fastest.  The top bit of a label's field is its mark (see `potts_visits`).
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Array, GridWindow, VolumeWindow


class Sizes(NamedTuple):
    """The compile-time constants of a climb."""

    start: int  # kind of starting labels
    n_labels: int
    room: int  # labels per sample whose leading noise bytes come from one Philox call of 16 bytes
    pack: int  # samples per word
    bits: int  # bits per label
    tile: int  # lanes per tile
    visit: int  # pairs visited together
    counters: int  # int32 counters per team of programs


class Field(NamedTuple):
    """The grid or volume of one climb and its weights, in the form that kernels take."""

    right: Any  # (1|n, H, W-1), after the axis of planes on a volume
    right_apart: int  # stride between images; 0 where all share the weights
    down: Any  # (1|n, H-1, W)
    down_apart: int
    height: int  # of all planes
    width: int
    n_words: int  # words of samples per site
    site_apart: int  # stride between sites, in words
    parity: int  # parity of the sum of the corner's coordinates in the whole image
    first_site: int  # number of the corner site in the whole image
    full_width: int
    plane: int  # rows of a plane
    full_plane: int = 0  # sites of a plane of the whole volume
    back: Any = None  # (1|n, D-1, H, W) weights to the next plane; None on a grid
    back_apart: int = 0
    edge_apart: tuple[int, int, int] = (1, 1, 1)  # strides between edges; 0 where those of a step share one weight


class Drawn(NamedTuple):
    """Noise that first visits store for later ones: scratch of T teams, (T, 2, ..) by colour, indexed by lane."""

    scores: Any  # two labels: (T, 2, PACK, lanes) perturbed score of label 1 minus label 0, without neighbours
    firsts: Any  # three or more: (T, 2, lanes) words of first labels (smallest clock, see `reference.noise`)
    ticks: Any  # (T, 2, lanes) words of the leading bytes of the uniforms behind those clocks


class Image(NamedTuple):
    """The climbs on one image."""

    terms: Any  # `Terms`
    draw: Any  # `Draw`
    field: Any  # `Field`
    words: Any  # its labels as words
    labels: Any  # the same memory, label by label
    changed: Any  # (R,) the last sweep that changed each sample
    n_samples: Any
    n: Any  # its index
    items: Any  # lanes per colour, padded to whole tiles
    scale: Any  # the temperature


class Terms(NamedTuple):
    """Properties of the sites that the noise needs: scratch that `describe_sites` fills."""

    log_p: Any  # (T, S, L) log softmax(unary / temperature)
    cumulative: Any  # (T, S, L) of p: the likeliest label first, then natural order; 2 at the last possible label
    facts: Any  # (T, S) the likeliest label + 2^16 · number of allowed labels


class Lanes(NamedTuple):
    """The lanes of a tile, from `lanes`: scalars and blocks (BLOCK,)."""

    inside: Any  # which lanes exist
    number: Any  # index among the lanes of its colour
    row: Any  # row of the site
    column: Any
    site: Any  # index of the site in the image
    word: Any  # index of the word of samples


def images_apart(weights: torch.Tensor) -> int:
    """Return the stride between the images' weights; 0 where all images share them."""
    return int(weights.stride(0)) if weights.shape[0] > 1 else 0


def grid_field(right: Array, down: Array, grid: GridWindow, n_words: int = 1) -> Field:
    """Return a grid with weights (1|n, H, W-1) to the right and (1|n, H-1, W) down."""
    weights = (right, images_apart(right), down, images_apart(down), grid.height, grid.width)
    corner = ((grid.row + grid.column) % 2, grid.row * grid.whole_width + grid.column, grid.whole_width)
    return Field(*weights, n_words, n_words, *corner, grid.height)


def volume_field(weights: tuple[Array, ...], volume: VolumeWindow) -> Field:
    """Return a volume with 6 neighbours and weights (1|n, 1|E) of the steps to the right, down and back."""
    (depth, height, width), (z, y, x), (full_height, full_width) = volume[:3]
    right, down, back = weights
    sides = (right, images_apart(right), down, images_apart(down), depth * height, width)
    corner = ((z + y + x) % 2, (z * full_height + y) * full_width + x, full_width)
    across, along, behind = (int(one.shape[1] > 1) for one in weights)
    whole, apart = full_height * full_width, images_apart(back)
    return Field(*sides, 1, 1, *corner, height, whole, back, apart, (across, along, behind))


@triton.jit
def lanes(field, tile, colour, BLOCK: tl.constexpr):
    """Return the lanes of a tile; where the width is odd, every second row has one unused lane."""
    per_row = (field.width + 1) // 2
    start = tile * BLOCK
    place = start // field.n_words
    row = place // per_row
    # Within a tile numbers are small, so the product with the reciprocal, rounded down, is the exact quotient.
    lane = start - place * field.n_words + tl.arange(0, BLOCK)
    step = ((lane.to(tl.float32) + 0.5) * (1.0 / field.n_words)).to(tl.int32)
    word = lane - step * field.n_words
    # Recomputed, so that the compiler sees no contiguous range: all blocks then have the same layout.
    number = (place + step) * field.n_words + word
    step += place - row * per_row
    below = ((step.to(tl.float32) + 0.5) * (1.0 / per_row)).to(tl.int32)
    row += below
    z, y = plane_of(field, row)
    column = 2 * (step - below * per_row) + ((z + y + colour + field.parity) & 1)
    inside = (row < field.height) & (column < field.width)
    return Lanes(inside, number, row, column, row * field.width + column, word)


@triton.jit
def lanes_at(field, number, inside, colour):
    """Return the lanes with the given numbers, which need not be consecutive."""
    per_row = (field.width + 1) // 2
    place = number // field.n_words
    row = place // per_row
    z, y = plane_of(field, row)
    column = 2 * (place - row * per_row) + ((z + y + colour + field.parity) & 1)
    return Lanes(inside, number, row, column, row * field.width + column, number - place * field.n_words)


@triton.jit
def plane_of(field, row):
    """Return the plane of a row, and its row in the plane; 0 and the row itself on a grid."""
    if field.back is None:
        z = row * 0
    else:
        z = row // field.plane
    return z, row - z * field.plane


@triton.jit
def number_of(field, row, column):
    """Return the number of a site in the whole image."""
    z, y = plane_of(field, row)
    return field.first_site + z.to(tl.int64) * field.full_plane + y.to(tl.int64) * field.full_width + column


@triton.jit
def keys_of(image, at, PACK: tl.constexpr):
    """Return the noise keys of lanes: the image, the first sample of each word, and the site."""
    draw, site = image.draw, number_of(image.field, at.row, at.column)
    return draw.first_image + image.n, draw.first_sample + at.word.to(tl.int64) * PACK, site


@triton.jit
def around(field, labels_ptr, at):
    """Return pointers to the lanes' words of labels, and the words to the left, right, above and below (or 0)."""
    across, along = field.site_apart, field.width * field.site_apart
    y = labels_ptr + at.site.to(tl.int64) * across + at.word
    return y, loads_around(field, y, at, across, along, ".cg")


@triton.jit
def loads_around(field, y, at, across, along, CACHE: tl.constexpr):
    """Load the values to the left, right, above and below; 0 outside the grid.  CACHE ".cg" bypasses the L1 cache.

    On a volume, those in front and behind follow.
    """
    _, row = plane_of(field, at.row)
    left = tl.load(y - across, mask=at.inside & (at.column > 0), other=0, cache_modifier=CACHE)
    right = tl.load(y + across, mask=at.inside & (at.column + 1 < field.width), other=0, cache_modifier=CACHE)
    up = tl.load(y - along, mask=at.inside & (row > 0), other=0, cache_modifier=CACHE)
    down = tl.load(y + along, mask=at.inside & (row + 1 < field.plane), other=0, cache_modifier=CACHE)
    found = (left, right, up, down)
    if field.back is not None:
        far, last = tl.cast(along, tl.int64) * field.plane, field.height - field.plane
        found += (tl.load(y - far, mask=at.inside & (at.row >= field.plane), other=0, cache_modifier=CACHE),)
        found += (tl.load(y + far, mask=at.inside & (at.row < last), other=0, cache_modifier=CACHE),)
    return found


@triton.jit
def weights(field, n, at, dtype: tl.constexpr):
    """Return the weights of the edges to the neighbours, in the order of `loads_around`; 0 where there is none."""
    z, row = plane_of(field, at.row)
    across, along, behind = field.edge_apart[0], field.edge_apart[1], field.edge_apart[2]
    beside = field.right + n * field.right_apart + (at.site - at.row) * across
    below = field.down + n * field.down_apart + (at.site - z * field.width) * along
    left = tl.load(beside - across, mask=at.inside & (at.column > 0), other=0.0)
    right = tl.load(beside, mask=at.inside & (at.column + 1 < field.width), other=0.0)
    up = tl.load(below - field.width * along, mask=at.inside & (row > 0), other=0.0)
    down = tl.load(below, mask=at.inside & (row + 1 < field.plane), other=0.0)
    found = (left.to(dtype), right.to(dtype), up.to(dtype), down.to(dtype))
    if field.back is not None:
        back, last = field.back + n * field.back_apart + at.site * behind, field.height - field.plane
        before = back - field.plane * field.width * behind
        found += (tl.load(before, mask=at.inside & (at.row >= field.plane), other=0.0).to(dtype),)
        found += (tl.load(back, mask=at.inside & (at.row < last), other=0.0).to(dtype),)
    return found


@triton.jit
def fields_of(words, j, BITS: tl.constexpr):
    """Return the labels of sample j of four words."""
    left, right = field_of(words[0], j, BITS), field_of(words[1], j, BITS)
    return left, right, field_of(words[2], j, BITS), field_of(words[3], j, BITS)


@triton.jit
def field_of(word, j, BITS: tl.constexpr):
    """Return the label of sample j of a word, without its mark."""
    return ((word >> (j * BITS)) & ((1 << (BITS - 1)) - 1)).to(tl.int32)


@triton.jit
def support(k, near, weight):
    """Return the sum of the neighbours' weights whose label is k."""
    total = tl.where(near[0] == k, weight[0], 0.0)
    for side in tl.static_range(1, len(near)):
        total += tl.where(near[side] == k, weight[side], 0.0)
    return total


@triton.jit
def lead(near, weight):
    """Return the neighbours' contribution to label 1 minus that to label 0, for two labels."""
    total = tl.where(near[0] > 0, weight[0], -weight[0])
    for side in tl.static_range(1, len(near)):
        total += tl.where(near[side] > 0, weight[side], -weight[side])
    return total


@triton.jit(noinline=True)
def describe_sites(unary_ptr, terms, first, n_sites, scale, SIZES: tl.constexpr):
    """Fill the terms of sites first .. first + BLOCK of an image; pointers are to its first site."""
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
        last = tl.full([BLOCK], -1, tl.int32)  # the last possible label other than the likeliest
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
