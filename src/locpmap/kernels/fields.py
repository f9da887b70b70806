"""Error fields of a climb: smooth random terms that each sample adds to the unary scores.

Label k of sample m gets the same offset at all sites, plus fields at J scales.  On a graph, the field of a scale has
one value per cluster of sites.  On a grid, the cells of scale j have ``cell · 2^j`` rows and columns.  A field has one
random *node* per corner of its cells and is bilinear inside them, so the sum of all scales is bilinear in the cells of
the finest scale: a coarser scale is added to the nodes of the next finer one.  The corner of the coarsest cell is moved
by a random *phase*, so that no pixel is special.  On a volume, cells are cubes and fields are trilinear.

Nodes are integers: a node's noise is the sum of eight random bytes, which is close to normal, times an integer factor.
Sums and interpolation are integer operations as well, so that every backend computes the same bytes.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from locpmap.kernels.model import Array
from locpmap.kernels.reference import noise

MEAN, LARGEST = 1020, 1020  # mean of the sum of eight bytes, and its largest deviation from the mean
DEVIATION = math.sqrt(8 * (2**16 - 1) / 12)  # standard deviation of that sum
LINEAR = 1.5  # the mean variance of linear interpolation is 2/3 of that of the nodes, for each axis
MAX_CELL = 16  # the finest cell: its square has to leave 22 bits for the nodes, its cube 18 bits
MAX_SCALES = 12
PAIRS, ROWS = 4096, 2**24  # strides of scales in the counter's group, and of rows of nodes in its site
VOLUME_ROWS = 2**16  # stride of rows, and of planes of rows, of a volume's nodes in the counter's site


class Fields(NamedTuple):
    """Sizes of the error fields of a batch.  The first axis has length 1 if all images share them."""

    factors: Array  # (1|N, J, L) int32 factors of the nodes' noise, the finest scale first
    shift: int  # the cells of the finest scale have 2^shift rows and columns
    unit: float  # a power of two: the value of one unit of an interpolated node
    shared: Array  # (1|N, L) standard deviations of the offset of all sites
    presence: Array  # (1|N, L) probability that a label occurs in a sample
    clusters: Array  # (J, S) cluster of every site at each scale, on graphs; (0, 0) on grids


class Moves(NamedTuple):
    """Offsets and phases of a span of n images and R samples, drawn on the host."""

    offsets: Array  # (n, R, L): added to the scores of all sites, -inf for labels that do not occur
    phases: Array  # (n, R, 2) int32: rows and columns by which the cells are moved; (n, R, 3) with planes on a volume


def quantised(
    sizes: Array, cell: int, shared: Array, presence: Array, clusters: Array | None = None, n_axes: int = 2
) -> Fields:
    """Return fields of standard deviations ``sizes`` (1|N, J, L); ``cell`` is a power of two, 1 with clusters."""
    shift = cell.bit_length() - 1
    steps = (LINEAR ** (n_axes / 2) if clusters is None else 1.0) / DEVIATION * np.asarray(sizes, np.float64)
    total = float(steps.sum(axis=1).max(initial=0.0)) * LARGEST
    # The sum of all scales at a node fits into 30 - n·shift bits, and its interpolation, times cell^n, into 30.
    exponent = math.frexp(total)[1] - (30 - n_axes * shift) if total > 0 else 0
    factors = np.floor(np.ldexp(steps, -exponent)).astype(np.int32)
    unit = math.ldexp(1.0, exponent - n_axes * shift)
    none = np.zeros((0, 0), np.int64)
    return Fields(factors, shift, unit, shared, presence, none if clusters is None else clusters)


@lru_cache(maxsize=4)  # every refinement uses them
def no_fields(n_labels: int) -> Fields:
    """Return fields without scales and offsets, in which all labels are present."""
    return quantised(np.zeros((1, 0, n_labels)), 4, np.zeros((1, n_labels)), np.ones((1, n_labels)))


def of_images(fields: Fields, lo: int, hi: int) -> Fields:
    """Return the fields of images lo..hi of a batch."""
    per_image = (fields.factors, fields.shared, fields.presence)
    factors, shared, presence = (array if len(array) == 1 else array[lo:hi] for array in per_image)
    return fields._replace(factors=factors, shared=shared, presence=presence)


def draw_moves(fields: Fields, key: noise.Key, images: range, samples: range, dtype: type, n_axes: int = 2) -> Moves:
    """Draw the offsets and phases of images and samples, given by their numbers in the noise.

    ``images`` indexes the first axis of the fields from 0 at ``images.start``: pass the fields of these images.
    """
    shared, presence = fields.shared[:, None], fields.presence[:, None]
    normals, uniforms, words = _draws(key, images, samples, fields.factors.shape[2])
    offsets = shared * normals
    if (presence < 1).any():
        offsets = np.where(uniforms < presence, offsets - np.log(presence), -np.inf)
    mask = (1 << (fields.shift + max(fields.factors.shape[1] - 1, 0))) - 1
    phases = words[..., :n_axes] & np.uint64(mask)
    return Moves(offsets.astype(dtype, order="C"), phases.astype(np.int32, order="C"))


@lru_cache(maxsize=4)  # the next image has the same draws if it has the same seed
def _draws(key: noise.Key, images: range, samples: range, n_labels: int) -> tuple[Array, Array, Array]:
    """Return normal and uniform numbers (N, R, L), and words (N, R, 4) for the phases."""
    from scipy.special import ndtri

    n_groups = -(-n_labels // 4)
    streams = np.repeat(np.array([noise.SHARED, noise.PRESENCE, noise.PHASE], np.uint64), [n_groups, n_groups, 1])
    groups = np.array([*range(n_groups), *range(n_groups), 0], np.uint64)
    image, sample = (np.array(numbers, np.uint64) for numbers in (images, samples))
    shape = (len(images), len(samples), len(groups))
    high = image[:, None, None] + (streams << np.uint64(28))
    counter = (np.zeros(shape, np.uint64), groups << np.uint64(16), sample[:, None], high)
    words = np.stack(noise.philox(counter, key), axis=-1)
    uniforms = noise.uniform(words[:, :, :-1].reshape(*shape[:2], 2, -1)[..., :n_labels])
    return ndtri(uniforms[:, :, 0]), uniforms[:, :, 1], words[:, :, -1]
