"""Standard errors of fitted weights.

Sites of one image depend on one another, so the curvature H of a composite likelihood does not tell how much its
maximum varies; Godambe's sandwich ``H⁻¹ J H⁻¹`` does, J being the variance of the images' own gradients.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from locpmap.arrays import Array
from locpmap.learning.dataset import Dataset
from locpmap.learning.objectives import Objective

MIN_IMAGES = 10  # fewer gradients say too little about their variance
MAX_WEIGHTS = 256
CURVATURE_SITES = 200_000  # enough for a curvature to three digits
STEP = 1e-4  # of the differences, in coordinates without units


def standard_errors(objective: Objective, data: Dataset, w: Array) -> Array | None:
    """Return standard errors (P,), or None for fewer than 10 images or more than 256 weights.

    An error is 0 for a weight at its bound and for combinations that leave the model unchanged.

    Costs one pass for the images' gradients and 2P passes over at most 200,000 sites for the curvature.
    """
    if data.n_images < MIN_IMAGES or len(w) > MAX_WEIGHTS:
        return None
    scales, bounds = data.scales, objective.parameters.bounds()
    # A weight at its bound does not vary; the others vary as if it were not there.
    free = np.ones(len(w), bool) if bounds is None else np.array([low is None for low, _ in bounds]) | (w > 0)
    gradients = [np.empty((0, len(w))), *(objective.per_image(batch, w) for batch in data.own)]
    scores = (np.concatenate(gradients) / scales)[:, free]
    curvature = (_curvature(objective, data, w) / np.outer(scales, scales))[np.ix_(free, free)]
    inverse = np.linalg.pinv(curvature, rcond=1e-10, hermitian=True)
    mean = data.processes.total(scores.sum(axis=0)) / data.n_images
    spread = (scores - mean) @ inverse
    errors = np.zeros(len(w))
    errors[free] = np.sqrt(data.processes.total((spread**2).sum(axis=0))) / scales[free]
    return errors


def _curvature(objective: Objective, data: Dataset, w: Array) -> Array:
    """Return the second derivatives (P, P) of sum and penalty, by differences of the gradient."""
    some, free = data.thinned(data.thinning(CURVATURE_SITES)), replace(objective, l2=0.0)
    factor = data.weight / some.weight
    curvature = np.empty((len(w), len(w)))
    for j in range(len(w)):
        step = np.zeros(len(w))
        step[j] = STEP / data.scales[j]
        ahead, behind = (free.mean(some, w + sign * step)[1] for sign in (1, -1))
        curvature[j] = (ahead - behind) / (2 * step[j])
    curvature *= some.weight
    penalty = np.diag(np.where(objective.parameters.penalised, objective.l2, 0.0))
    return factor * (curvature + curvature.T) / 2 + penalty
