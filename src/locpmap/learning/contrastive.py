"""Contrastive learning: match the mean features of the data and of short Markov chains that start at the data.

Let φ(y) be the features of a labelling, whose score is wᵀφ(y), and y⁽ᵏ⁾ the labels after k sweeps of Gibbs sampling
from the true labels y. The fit solves ``E[φ(y⁽ᵏ⁾)] = φ(y)``, with the gradient of the penalty, by stochastic
approximation: Newton steps with decreasing gains on noisy differences ``φ(y⁽ᵏ⁾) - φ(y)``. It returns the mean of the
later iterates.

By linear response, the derivative of ``E[φ(y⁽ᵏ⁾)]`` at the true weights is the autocovariance of φ at lag 0 minus that
at lag k. Half of the covariance of the differences estimates it.
"""

import time
from itertools import pairwise

import numpy as np

from locpmap.arrays import Array
from locpmap.learning.batches import Batch, draw
from locpmap.learning.dataset import Dataset
from locpmap.learning.fit import SEEDS, Control, Sampler, fitted_result
from locpmap.learning.objectives import Objective
from locpmap.learning.optimisers import projected
from locpmap.learning.result import FitResult, FitStatus

MOST = 60  # steps after the warm-up
WARM_UP = 10  # steps that only estimate the derivative
GROUPS = 8  # groups of images whose differences estimate their covariance
RIDGE = 1e-3  # of the mean diagonal entry of the derivative
MAX_MOVE = 0.5  # of a weight in a step, in scaled coordinates
N_STANDARD_ERRORS = 4.0  # largest mean difference of a converged fit


def fit_contrastive(objective: Objective, data: Dataset, sampler: Sampler, start: Array, control: Control) -> FitResult:
    """Fit by at most `MOST` steps on mini-batches, from the weights ``start``."""
    began = time.perf_counter()
    scales, processes, size = data.scales, data.processes, len(start)
    lowest = objective.parameters.lowest

    def differences(batch: Batch, w: Array, step: int) -> Array:
        """Return the sum of the differences in each group of images, in scaled coordinates, (GROUPS, P)."""
        own, sums = processes.part(batch.n_images), np.zeros((GROUPS, size))
        if own.start < own.stop:
            part = batch if processes.size == 1 else batch.part(own)
            samples = sampler(part, w, 1, (control.seed + step) % SEEDS, own.start)
            for g, ends in enumerate(pairwise(_borders(batch))):
                lo, hi = np.clip(ends, own.start, own.stop) - own.start
                if lo < hi:
                    sums[g] = objective(part.part(slice(lo, hi)), w, samples[lo:hi])[1] / scales
        return processes.total(sums.ravel()).reshape(sums.shape)

    n_moves = min(max(control.max_iterations, 2), MOST)
    state = control.checkpoint.load() or {
        "point": start * scales,
        "squares": np.zeros((size, size)),
        "points": np.zeros((0, size)),
        "gradients": np.zeros((0, size)),
    }
    point, squares = state["point"], state["squares"]
    points, gradients = list(state["points"]), list(state["gradients"])
    for step in range(len(points), WARM_UP + n_moves):
        w = point / scales
        batch = draw(data.batches, control.images_per_step, control.seed, step)
        here = data.weight * batch.n_images / data.n_images
        sums, counts = differences(batch, w, step), np.diff(_borders(batch))[:, None]
        mean = sums.sum(axis=0) / here
        gradient = mean + objective.penalty(w, data.weight)[1] / scales
        n_groups = np.count_nonzero(counts)
        if n_groups > 1:
            sums = (sums - counts * sums.sum(axis=0) / batch.n_images) * np.sqrt(n_groups / (n_groups - 1))
        squares = squares + sums.T @ sums / here / 2
        if step >= WARM_UP:
            derivative = squares / (step + 1)
            derivative[np.diag_indices(size)] += (
                objective.l2 / data.weight / scales**2 + RIDGE * np.diag(derivative).mean() + 1e-12
            )
            move = (1 + (step - WARM_UP) / 5) ** -0.8 * np.linalg.solve(derivative, gradient)
            point = np.maximum(point - move / max(1.0, np.abs(move).max() / MAX_MOVE), lowest)
        points.append(point)
        gradients.append(gradient)
        control.checkpoint.offer(
            {"point": point, "squares": squares, "points": np.array(points), "gradients": np.array(gradients)}
        )
        if control.progress is not None:
            control.progress(step + 1, WARM_UP + n_moves, float(np.abs(gradient).max()))
    later = np.array(gradients[-(n_moves // 2) :])
    w = np.mean(points[-(n_moves // 2) :], axis=0) / scales
    w = objective.parameters.fold(*objective.parameters.expand(w))
    error = later.std(axis=0) / np.sqrt(len(later))
    excess = np.sign(later.mean(axis=0)) * np.maximum(np.abs(later.mean(axis=0)) - N_STANDARD_ERRORS * error, 0)
    norm = projected(point, excess, lowest)
    return fitted_result(
        "contrastive",
        objective,
        data,
        w,
        began,
        status=FitStatus.CONVERGED if norm <= control.tolerance else FitStatus.MAX_ITERATIONS,
        value=float(np.abs(later.mean(axis=0)).max()),
        curve=np.abs(gradients).max(axis=1),
        gradient_norm=projected(point, later.mean(axis=0), lowest),
        n_iterations=len(points),
    )


def _borders(batch: Batch) -> Array:
    """Return the first image of each group, and the number of images."""
    return np.arange(GROUPS + 1) * batch.n_images // GROUPS
