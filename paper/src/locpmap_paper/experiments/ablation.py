"""Ablation of LocPMAP: noise, start, probability estimate, blocks, and number of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from locpmap import metrics
from locpmap_paper.experiments.rows import Subject

NUMBERS = (1, 2, 5, 10, 20, 50, 100, 200)  # of samples
FAST_NUMBERS = (1, 2, 5)


@dataclass(frozen=True)
class Cell:
    """One setting of LocPMAP in the ablation."""

    noise: bool = True
    start: str = "random"  # "random", "perturbed" or "unary"
    probability: str = "votes"
    blocks: str = "sites"
    n_samples: int = 50

    @property
    def name(self) -> str:
        """The name of the setting in file names."""
        noise = "noise" if self.noise else "plain"
        return f"{noise}-{self.start}-{self.probability}-{self.blocks}-{self.n_samples}"


def grid(fast: bool, blocks: Sequence[str]) -> list[Cell]:
    """Return every combination of settings at one number of samples.

    Without noise, the perturbed start equals the start at the unaries and is left out.
    """
    n_samples = FAST_NUMBERS[-1] if fast else Cell.n_samples
    parts = product((True, False), ("random", "perturbed", "unary"), ("votes", "conditional"), blocks)
    return [Cell(*part, n_samples) for part in parts if part[:2] != (False, "perturbed")]


def n_cells(fast: bool, blocks: Sequence[str]) -> int:
    """Return the total number of cells: the grid, and two cells at every other number of samples."""
    numbers = FAST_NUMBERS if fast else NUMBERS
    return len(grid(fast, blocks)) + 2 * (len(numbers) - 1)


def ablate(fast: bool, blocks: Sequence[str], evaluate: Callable[[Cell], dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluate the grid, then the paper's cell and the best other cell at other numbers of samples."""
    cells = grid(fast, blocks)
    rows = [evaluate(cell) for cell in cells]
    others = sorted(zip(rows[1:], cells[1:], strict=True), key=lambda pair: -pair[0]["mean_iou"])
    for cell in (cells[0], others[0][1]):
        rows += _numbers(cell, FAST_NUMBERS if fast else NUMBERS, evaluate)
    return rows


def _numbers(cell: Cell, numbers: Sequence[int], evaluate: Callable[[Cell], dict[str, Any]]) -> list[dict[str, Any]]:
    return [evaluate(replace(cell, n_samples=n)) for n in numbers if n != cell.n_samples]


def measure_cell(subject: Subject, cell: Cell, n_images: int) -> dict[str, Any]:
    """Decode the first test images with one setting and measure the result."""
    potentials, truth = subject.potentials(n_images), subject.test(n_images).truth
    start: Any = cell.start
    if start == "unary":
        start = potentials.unflatten(potentials.unary).argmax(axis=-1)
    result = subject.infer(
        potentials,
        "locpmap",
        seed=subject.case.seed_of("decoding"),
        n_samples=cell.n_samples,
        blocks=cell.blocks,
        start=start,
        probability=cell.probability,
        temperature=float(cell.noise),
    )
    iou = metrics.intersection_over_union(result.labels, truth, potentials.n_labels)
    nll = metrics.negative_log_likelihood(result.probability, truth)
    return {**asdict(cell), "mean_iou": float(np.mean(iou)), "nll": nll, "seconds": result.seconds}
