"""Standard errors of fitted weights.

Sites of one image depend on one another, so the curvature H of a composite likelihood does not tell how much its
maximum varies; Godambe's sandwich ``H⁻¹ J H⁻¹`` does, J being the variance of the images' own gradients.
"""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array
from locpmap.learning.batches import thinned
from locpmap.learning.objectives import Objective

MIN_IMAGES = 10  # fewer gradients say too little about their variance
MAX_WEIGHTS = 256
CURVATURE_SITES = 200_000  # enough for a curvature to three digits
STEP = 1e-4  # of the differences, in coordinates without units


def standard_errors(objective: Objective, w: Array) -> Array | None:
    """(P,), 0 for combinations that the gauge or a bound holds; None for too few images or too many weights.

    Costs one pass for the images' gradients and 2P passes over at most 200,000 sites for the curvature.
    """
    if objective.n_images < MIN_IMAGES or len(w) > MAX_WEIGHTS:
        return None
    scales, bounds = objective.scales, objective.parameters.bounds()
    # A weight at its bound does not vary; the others vary as if it were not there.
    free = np.ones(len(w), bool) if bounds is None else np.array([low is None for low, _ in bounds]) | (w > 0)
    scores = (objective.scores(w) / scales)[:, free]
    curvature = (_curvature(objective, w) / np.outer(scales, scales))[np.ix_(free, free)]
    inverse = np.linalg.pinv(curvature, rcond=1e-10, hermitian=True)
    mean = objective.processes.total(scores.sum(axis=0)) / objective.n_images
    spread = (scores - mean) @ inverse
    errors = np.zeros(len(w))
    errors[free] = np.sqrt(objective.processes.total((spread**2).sum(axis=0))) / scales[free]
    return errors


def _curvature(objective: Objective, w: Array) -> Array:
    """The second derivatives (P, P) of the sum over all data and the penalty, from differences of the gradient."""
    some = objective.on(thinned(objective.batches, objective.thinning(CURVATURE_SITES)), l2=0.0)
    share = objective.weight / some.weight
    curvature = np.empty((len(w), len(w)))
    for j in range(len(w)):
        step = np.zeros(len(w))
        step[j] = STEP / objective.scales[j]
        ahead, behind = (some.value_and_gradient(w + sign * step)[1] for sign in (1, -1))
        curvature[j] = (ahead - behind) / (2 * step[j])
    curvature *= some.weight
    penalty = np.diag(np.where(objective.parameters.penalised, objective.l2, 0.0))
    return share * (curvature + curvature.T) / 2 + penalty
