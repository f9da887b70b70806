"""LocPMAP climb on a volume with Potts weights >= 0, in the lazy noise scheme (see `noise`)."""

from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.perturbation import VolumeClimb, VolumeLinks
from locpmap.kernels.reference.climb_potts import perturbed_start
from locpmap.kernels.reference.scores import ends_of


def climb_volume(climb: VolumeClimb, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); return the number of the last sweep that changed a label, (n, R)."""
    sweeps = np.zeros((len(labels), labels.shape[2]), np.int32)
    z, y, x = (start + np.arange(n) for start, n in zip(climb.corner, climb.links.shape, strict=True))
    height, width = climb.plane_shape
    sites = ((z[:, None, None] * height + y[:, None]) * width + x).ravel()
    diagonal = len(climb.links.steps) > 3
    colour = (
        (z[:, None, None] % 2 * 4 + y[:, None] % 2 * 2 + x % 2) if diagonal else (z[:, None, None] + y[:, None] + x) % 2
    )
    classes = [np.flatnonzero(colour == c) for c in range(8 if diagonal else 2)]
    for n in range(len(labels)):
        weights = weights_between(climb.links, n)
        parts = [(sites_of_class, weights[sites_of_class]) for sites_of_class in classes]
        for s in range(labels.shape[2]):
            scores, start = perturbed_start(climb, n, s, climb.unary[n], sites)
            labels[n, :, s], sweeps[n, s] = ascend(parts, scores, start, climb.max_sweeps)
    return sweeps


def ascend(parts: list[tuple[Array, Any]], scores: Array, y: Array, max_sweeps: int) -> tuple[Array, int]:
    """Climb from ``y`` (S,) on perturbed scores (S, L); return labels and the last sweep with a change.

    Each part holds the sites of a colour class and their rows of `weights_between`.
    """
    y, last, one_hot = y.astype(np.int64), 0, np.eye(scores.shape[1])
    for sweep in range(1, max_sweeps + 1):
        before = y.copy()
        for sites, weights in parts:
            local = scores[sites] + weights @ one_hot[y]
            here = np.take_along_axis(local, y[sites, None], axis=1)[:, 0]
            y[sites] = np.where(local.max(axis=1) > here, local.argmax(axis=1), y[sites])
        if (y == before).all():
            break
        last = sweep
    return y, last


def weights_between(links: VolumeLinks, n: int) -> Any:
    """Return the weights of image n between any two sites, as a sparse matrix (S, S)."""
    from scipy.sparse import coo_array

    sites = np.arange(np.prod(links.shape)).reshape(links.shape)
    first, second, values = [], [], []
    for step, weights in zip(links.steps, links.weights, strict=True):
        a, b = (sites[end].ravel() for end in ends_of(step, links.shape))
        first.append(a)
        second.append(b)
        values.append(np.broadcast_to(weights[n if len(weights) > 1 else 0], len(a)).astype(np.float64))
    ends = np.concatenate(first), np.concatenate(second)
    upper = coo_array((np.concatenate(values), ends), (sites.size, sites.size))
    return (upper + upper.T).tocsr()
