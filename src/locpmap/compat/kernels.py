"""A Gaussian kernel between all pairs of pixels, as Potts weights on a few steps of a grid.

A dense CRF joins every pixel i with every other one, j, by ``k(i, j) = exp(-½ |p_i - p_j|² / σ² - ½ |c_i - c_j|²)`` of
their places p and, if there is an image, of its colours c divided by their spread.  Here a pixel keeps 2n of these
neighbours, n steps away and as many back.  The steps lie on a spiral, densest near the pixel, where colours are alike,
and the mass of every other offset goes to the nearest step: of slowly changing labels the sum over all j is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from locpmap.arrays import Array
from locpmap.graphs.grid import ends_of

Step = tuple[int, int]

GOLDEN = 0.618033988749895  # of half a turn, between one step of the spiral and the next
REACH = 3.0  # spreads, beyond which a Gaussian has no mass that matters
# Steps of a kernel of places, and of one of colours, which vary more: chosen for their agreement with pydensecrf on
# scenes of `benchmarks/coming_from_pydensecrf.py choose`.  More come closer and take longer.
N_PLACES, N_COLOURS = 4, 24
NEARNESS = 1.5  # 1: steps as dense as the Gaussian; above: denser near the pixel


@dataclass(frozen=True, eq=False)
class Kernel:
    """What ``create_pairwise_gaussian`` and ``create_pairwise_bilateral`` return, for ``addPairwiseEnergy``."""

    spread: tuple[float, float]  # σ of rows and of columns, in pixels
    shape: tuple[int, int]  # (H, W)
    guide: Array | None = None  # colours (C, H, W) divided by their spread

    def weights(self) -> dict[Step, Array]:
        """Normalised weights of the edges of each step, (h, w) float32: about 1 in sum over the neighbours of a pixel.

        ``w_ij = m_ij / sqrt(n_i n_j)``, where ``m_ij`` is the step's mass times the likeness of the colours, and
        ``n_i = 1 + Σ_j m_ij``: the 1 is the pixel itself.  Costs O(C · H · W) for each step.
        """
        steps = spiral(self.spread, self.shape, N_PLACES if self.guide is None else N_COLOURS)
        masses = dict(zip(steps, masses_of(steps, self.spread, self.shape), strict=True))
        found = {step: np.float32(masses[step]) * self._likeness(step) for step in steps}
        total = np.ones(self.shape, np.float32)
        for step, mass in found.items():
            for end in ends_of(step, *self.shape):
                total[end] += mass
        scale = 1 / np.sqrt(total)
        for step, mass in found.items():
            first, second = ends_of(step, *self.shape)
            mass *= scale[first] * scale[second]
        return found

    def _likeness(self, step: Step) -> Array:
        """``exp(-½ |c_i - c_j|²)`` of both ends of each edge; 1 without colours."""
        first, second = ends_of(step, *self.shape)
        if self.guide is None:
            return np.ones(np.empty(self.shape, bool)[first].shape, np.float32)
        squares = sum((channel[first] - channel[second]) ** 2 for channel in self.guide)
        return np.asarray(np.exp(-0.5 * squares), np.float32)


def spiral(spread: tuple[float, float], shape: tuple[int, int], n_steps: int) -> list[Step]:
    """At most ``n_steps`` different steps inside the image, each of an odd total.

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
    for step in ((0, 1), (1, 0)):  # an image of one row, or smaller than the spread, has neighbours too
        if step[0] < shape[0] and step[1] < shape[1]:
            found[step] = None
    return sorted(found, key=lambda step: step[0] ** 2 + step[1] ** 2)


def _odd(down: float, right: float, spread: tuple[float, float]) -> Step:
    """The step of whole numbers with an odd total, down or right in its own row, nearest to a place in spreads."""
    row, column = math.floor(down * spread[0]), math.floor(right * spread[1])
    near = [(r, c) for r in range(row - 1, row + 3) for c in range(column - 1, column + 3) if (r + c) % 2]
    best = min(near, key=lambda step: (step[0] / spread[0] - down) ** 2 + (step[1] / spread[1] - right) ** 2)
    return best if best[0] > 0 or (best[0] == 0 and best[1] > 0) else (-best[0], -best[1])


def masses_of(steps: list[Step], spread: tuple[float, float], shape: tuple[int, int]) -> Array:
    """The Gaussian's mass of all offsets of half a plane, each given to the nearest step: (n_steps,)."""
    if not steps:
        return np.zeros(0)
    high, wide = (min(int(REACH * sigma) + 1, side - 1) for sigma, side in zip(spread, shape, strict=True))
    down, right = np.mgrid[0 : high + 1, -wide : wide + 1]
    half = (down > 0) | (right > 0)
    offsets = np.stack([down[half] / spread[0], right[half] / spread[1]])  # (2, n)
    mass = np.exp(-0.5 * (offsets**2).sum(0))
    places = np.array(steps) / spread  # a step and its opposite are one
    distance = [np.minimum(*(((offsets.T - sign * place) ** 2).sum(1) for sign in (1, -1))) for place in places]
    return np.bincount(np.argmin(distance, axis=0), mass, len(steps))
