"""Perturbation and start of a *climb* (greedy coordinate ascent to a local maximum of the perturbed score)."""

from typing import NamedTuple

from locpmap.kernels.model import Array

# Perturbation schemes: none, Gumbel noise, logistic noise (lazy, two labels), unaries set to 0 at random sites, and
# lazy Gumbel noise (three or more labels).
NONE, PLAIN, LOGISTIC, DROP, LAZY = range(5)
# The labelling that a climb starts from: random, argmax of the perturbed unaries, or given labels.
RANDOM, PERTURBED, GIVEN = range(3)


class Perturbation(NamedTuple):
    """The scheme, its amount (temperature, or fraction of sites whose unaries are set to 0) and the noise key."""

    scheme: int
    amount: float
    k0: int
    k1: int


class GridClimb(NamedTuple):
    """Climbs of n images in the lazy noise scheme (`reference.noise`), on a 4-connected grid with Potts weights."""

    unary: Array  # (n, S, L)
    right: Array  # (1|n, H, W-1) weights of horizontal edges
    down: Array  # (1|n, H-1, W) weights of vertical edges
    temperature: float
    k0: int
    k1: int
    first_image: int
    first_sample: int
    start: int
    given: Array  # (n, S) labels to start from
    row: int  # row of the window's upper left corner in the whole grid
    column: int
    full_width: int  # width of the whole grid
    max_sweeps: int


class VolumeLinks(NamedTuple):
    """The edges of a volume with Potts weights."""

    shape: tuple[int, int, int]  # (D, H, W)
    steps: tuple[tuple[int, int, int], ...]  # from the first end of an edge to its second: 3 or, with diagonals, 13
    weights: tuple[Array, ...]  # (1|n, 1|E) per step, in raster order of the first ends


class VolumeClimb(NamedTuple):
    """Climbs of n images in the lazy noise scheme (`reference.noise`), on a volume with Potts weights >= 0."""

    unary: Array  # (n, S, L)
    links: VolumeLinks
    temperature: float
    k0: int
    k1: int
    first_image: int
    first_sample: int
    start: int
    given: Array  # (n, S) labels to start from
    corner: tuple[int, int, int]  # coordinates of the first site in the whole volume
    plane_shape: tuple[int, int]  # height and width of the whole volume
    max_sweeps: int
