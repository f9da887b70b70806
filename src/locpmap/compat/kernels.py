"""Sparse approximation of a dense Gaussian kernel: Potts weights on a few steps of a grid.

A dense CRF connects all pairs of pixels with the weight ``k(i, j) = exp(-½ |p_i - p_j|² / σ² - ½ |c_i - c_j|²)``, where
p is the position, σ its spread, and c the colour divided by its spread (without an image there is no colour term).

The approximation connects a pixel to 2n others, at n steps (rows down, columns right) and their opposites.  The
steps lie on a spiral that is densest near the pixel, where colours are similar.  Every other offset adds its mass, the
value of the Gaussian, to the nearest step.  Where labels vary slowly, the sum over neighbours is that of the dense CRF.
"""

import math
from dataclasses import dataclass

import numpy as np

from locpmap.arrays import Array
from locpmap.graphs.grid import ends_of

Step = tuple[int, int]

GOLDEN = 0.618033988749895  # angle between consecutive steps, in units of π
REACH = 3.0  # cut-off of the Gaussian, in standard deviations
# Steps of a Gaussian and of a bilateral kernel, chosen for their agreement with pydensecrf on the scenes of
# `benchmarks/coming_from_pydensecrf.py choose`.  More steps are more accurate and slower.
N_PLACES, N_COLOURS = 4, 24
NEARNESS = 1.5  # 1: density of the steps follows the Gaussian; above 1: denser near the pixel


@dataclass(frozen=True, eq=False)
class Kernel:
    """Gaussian or bilateral kernel on an image, for ``DenseCRF2D.addPairwiseEnergy``."""

    spread: tuple[float, float]  # σ of rows and of columns, in pixels
    shape: tuple[int, int]  # (H, W)
    guide: Array | None = None  # colours (C, H, W) divided by their spread

    def weights(self) -> dict[Step, Array]:
        """Return the normalised edge weights of each step, (h, w) float32; those of a pixel sum to about 1.

        ``w_ij = m_ij / sqrt(n_i n_j)``, where ``m_ij`` is the mass of the step times the similarity of the colours, and
        ``n_i = 1 + Σ_j m_ij`` (the 1 stands for the pixel itself).  The cost is O(C · H · W) per step.
        """
        steps = spiral(self.spread, self.shape, N_PLACES if self.guide is None else N_COLOURS)
        masses = dict(zip(steps, masses_of(steps, self.spread, self.shape), strict=True))
        found = {step: np.float32(masses[step]) * self._similarity(step) for step in steps}
        total = np.ones(self.shape, np.float32)
        for step, mass in found.items():
            for end in ends_of(step, *self.shape):
                total[end] += mass
        scale = 1 / np.sqrt(total)
        for step, mass in found.items():
            first, second = ends_of(step, *self.shape)
            mass *= scale[first] * scale[second]
        return found

    def _similarity(self, step: Step) -> Array:
        """Return ``exp(-½ |c_i - c_j|²)`` for each edge (i, j) of a step; 1 without colours."""
        first, second = ends_of(step, *self.shape)
        if self.guide is None:
            return np.ones(np.empty(self.shape, bool)[first].shape, np.float32)
        squares = sum((channel[first] - channel[second]) ** 2 for channel in self.guide)
        return np.asarray(np.exp(-0.5 * squares), np.float32)


def spiral(spread: tuple[float, float], shape: tuple[int, int], n_steps: int) -> list[Step]:
    """Return steps (rows, columns) on a spiral, each with an odd sum, so that edges join pixels of different parity.

    The spiral has ``n_steps`` points; equal steps and steps longer than the image are dropped.  The steps to adjacent
    pixels are always included.

    >>> spiral((1.0, 1.0), (10, 10), 4)
    [(0, 1), (1, 0), (1, -2)]
    """
    found: dict[Step, None] = {}
    for k in range(n_steps):
        radius = math.sqrt(-2 * math.log(1 - ((k + 0.5) / n_steps) ** NEARNESS))
        angle = math.pi * ((k * GOLDEN) % 1)
        step = _odd(radius * math.sin(angle), radius * math.cos(angle), spread)
        if step[0] < shape[0] and abs(step[1]) < shape[1]:
            found[step] = None
    for step in ((0, 1), (1, 0)):  # so that tiny images have edges, too
        if step[0] < shape[0] and step[1] < shape[1]:
            found[step] = None
    return sorted(found, key=lambda step: step[0] ** 2 + step[1] ** 2)


def _odd(down: float, right: float, spread: tuple[float, float]) -> Step:
    """Return the integer step with an odd sum, pointing down or right, nearest to an offset in units of the spread."""
    row, column = math.floor(down * spread[0]), math.floor(right * spread[1])
    near = [(r, c) for r in range(row - 1, row + 3) for c in range(column - 1, column + 3) if (r + c) % 2]
    best = min(near, key=lambda step: (step[0] / spread[0] - down) ** 2 + (step[1] / spread[1] - right) ** 2)
    return best if best[0] > 0 or (best[0] == 0 and best[1] > 0) else (-best[0], -best[1])


def masses_of(steps: list[Step], spread: tuple[float, float], shape: tuple[int, int]) -> Array:
    """Return the mass of each step, (n_steps,): the Gaussian summed over the offsets nearest to the step."""
    if not steps:
        return np.zeros(0)
    high, wide = (min(int(REACH * sigma) + 1, side - 1) for sigma, side in zip(spread, shape, strict=True))
    down, right = np.mgrid[0 : high + 1, -wide : wide + 1]
    half = (down > 0) | (right > 0)
    offsets = np.stack([down[half] / spread[0], right[half] / spread[1]])  # (2, n)
    mass = np.exp(-0.5 * (offsets**2).sum(0))
    places = np.array(steps) / spread  # a step and its opposite count as one
    distance = [np.minimum(*(((offsets.T - sign * place) ** 2).sum(1) for sign in (1, -1))) for place in places]
    return np.bincount(np.argmin(distance, axis=0), mass, len(steps))
