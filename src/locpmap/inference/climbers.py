"""Ways to draw a sample by climbing, each a function of (images, samples) that calls one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import cast, of_images
from locpmap.graphs import Grid
from locpmap.inference.decoder import Problem
from locpmap.inference.directions import direction_weights, model_of_images, takes_directions
from locpmap.inference.sampling import Draw
from locpmap.kernels import ON_GPU
from locpmap.kernels.block_plan import MAX_LINE_LABELS, BlockPlan
from locpmap.kernels.perturbation import GIVEN, Perturbation
from locpmap.potentials import Potentials

Array = npt.NDArray[Any]
MAX_BIT_SITES = 1 << 19


@dataclass(frozen=True)
class Climb:
    """What every climb needs to know besides the model."""

    perturbation: Perturbation
    start: int
    given: Array
    max_sweeps: int


def site_climber(problem: Problem, climb: Climb) -> Draw:
    """Single sites on any graph with any table."""

    def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
        labels = problem.empty((hi - lo, problem.potentials.n_sites, count), "int16")
        how = (climb.perturbation, climb.start, climb.given, climb.max_sweeps)
        return labels, problem.kernels.climb_sites(problem.model, *how, problem.first_image, lo, hi, first, labels)

    return draw


def still_climber(problem: Problem) -> Draw:
    """No noise, neighbours without a say, and a start at the best labels: nothing is left to climb."""

    def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
        labels = problem.empty((hi - lo, problem.potentials.n_sites, count), "int16")
        labels[...] = of_images(problem.potentials.unary, lo, hi).argmax(axis=2)[:, :, None]
        return labels, problem.zeros((hi - lo, count), "int32")

    return draw


def block_climber(problem: Problem, climb: Climb, plan: BlockPlan) -> Draw:
    """Blocks of sites."""

    def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
        labels = problem.empty((hi - lo, problem.potentials.n_sites, count), "int16")
        how = (plan, climb.perturbation, climb.start, climb.given, climb.max_sweeps)
        return labels, problem.kernels.climb_blocks(problem.model, *how, problem.first_image, lo, hi, first, labels)

    return draw


def line_climber(problem: Problem, climb: Climb, lines: str) -> Draw:
    """Rows, columns or both of a 4-connected grid with Potts weights, by a kernel that only GPUs have."""
    potentials, grid = problem.potentials, problem.potentials.structure
    assert isinstance(grid, Grid)
    weights = direction_weights(potentials, potentials.unary.dtype)
    window = (grid.row, grid.column, grid.whole_width)
    attractive = potentials.pairwise.least_weight >= 0

    def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
        labels = problem.empty((hi - lo, potentials.n_sites, count), "uint8")
        model = (*model_of_images(potentials, weights, lo, hi), attractive, lines)
        noise = (climb.perturbation, problem.first_image + lo, first)
        where = (climb.start, climb.given[lo:hi], *window, climb.max_sweeps)
        return labels, problem.kernels.climb_lines(*model, *noise, *where, labels)

    return draw


def potts_climber(problem: Problem, climb: Climb) -> Draw:
    """Single sites on a 4-connected grid with Potts weights >= 0, lazy noise; with two labels, of any sign."""
    grid = problem.potentials.structure
    assert isinstance(grid, Grid)
    weights = direction_weights(problem.potentials, problem.potentials.unary.dtype)
    window = (grid.row, grid.column, grid.whole_width)
    given = cast(climb.given, "uint8") if climb.start == GIVEN else climb.given
    # On a GPU labels are marked in their upper bit, and those of eight samples lie in whole words.
    unit = 8 if problem.kernels.device else 1
    dtype = "int16" if problem.kernels.device and problem.potentials.n_labels > 127 else "uint8"

    def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
        labels = problem.empty((hi - lo, problem.potentials.n_sites, count), dtype, -(-count // unit) * unit)
        model = model_of_images(problem.potentials, weights, lo, hi)
        noise = (*climb.perturbation[1:], problem.first_image + lo, first)
        where = (climb.start, of_images(given, lo, hi) if climb.start == GIVEN else given, *window, climb.max_sweeps)
        return labels, problem.kernels.climb_potts(*model, *noise, *where, labels)

    return draw


def bits_climber(problem: Problem, climb: Climb) -> Draw:
    """Single sites of a 4-connected grid with two labels and Potts weights; 64 samples to a word."""
    potentials, grid = problem.potentials, problem.potentials.structure
    assert isinstance(grid, Grid)
    weights = direction_weights(potentials, np.dtype(np.float64))
    window = (grid.row, grid.column, grid.whole_width)
    given = climb.given.astype(np.uint8)

    def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
        words = np.empty((hi - lo, potentials.n_sites), np.uint64)
        noise = (*climb.perturbation[1:], problem.first_image + lo, first, count)
        where = (climb.start, given[lo:hi], *window, climb.max_sweeps)
        model = model_of_images(potentials, weights, lo, hi)
        return words, problem.kernels.climb_bits(*model, *noise, *where, words)

    return draw


def takes_lines(problem: Problem, blocks: Any) -> bool:
    """Whether :func:`line_climber` can serve."""
    few = problem.potentials.n_labels <= MAX_LINE_LABELS
    whole = isinstance(blocks, str) and ":" not in blocks
    return problem.kernels.name == ON_GPU and whole and few and takes_directions(problem.potentials)


def takes_bits(potentials: Potentials) -> bool:
    """Whether :func:`bits_climber` can serve, and its scratch (up to 22 words per site and thread) stays small.

    Its sums round otherwise than those of other climbers, so that a window is treated as the whole would be.
    """
    grid = potentials.structure
    if not isinstance(grid, Grid) or not takes_directions(potentials) or potentials.n_labels != 2:
        return False
    return grid.whole_sites <= MAX_BIT_SITES
