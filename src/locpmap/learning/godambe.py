"""Standard errors of fitted weights by Godambe's sandwich estimator.

The sites of one image depend on one another, so the inverse Hessian H⁻¹ of a composite likelihood is not the covariance
of its maximiser. The sandwich ``H⁻¹ J H⁻¹`` is, where J is the covariance of the per-image gradients.
"""

from dataclasses import replace

import numpy as np

from locpmap.arrays import Array
from locpmap.learning.dataset import Dataset
from locpmap.learning.objectives import Objective

MIN_IMAGES = 10  # minimum for an estimate of the gradients' covariance
MAX_WEIGHTS = 256
CURVATURE_SITES = 200_000  # gives the Hessian to about three digits
STEP = 1e-4  # of the finite differences, in scaled coordinates


def standard_errors(objective: Objective, data: Dataset, w: Array) -> Array | None:
    """Return standard errors (P,), or None for fewer than 10 images or more than 256 weights.

    A weight at its bound has standard error 0. Directions in which the objective is flat contribute no variance.
    Costs one pass for the per-image gradients and 2P passes over about 200,000 sites for the Hessian.
    """
    if data.n_images < MIN_IMAGES or len(w) > MAX_WEIGHTS:
        return None
    scales = data.scales
    free = w > objective.parameters.lowest  # a weight at its bound is treated as fixed
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
    """Return the Hessian (P, P) of the summed loss and the penalty, by central differences of the gradient."""
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
