"""LocPMAP climb on a volume with Potts weights >= 0, in the lazy noise scheme (see `noise`)."""

import math

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
    for n in range(len(labels)):
        for s in range(labels.shape[2]):
            scores, start = perturbed_start(climb, n, s, climb.unary[n], sites)
            labels[n, :, s], sweeps[n, s] = ascend(climb, n, scores, start, colour.ravel(), 8 if diagonal else 2)
    return sweeps


def ascend(climb: VolumeClimb, n: int, scores: Array, y: Array, colour: Array, n_colours: int) -> tuple[Array, int]:
    """Climb from ``y`` (S,) on perturbed scores (S, L) of image n; return labels and the last sweep with a change."""
    y, last = y.astype(np.int64), 0
    for sweep in range(1, climb.max_sweeps + 1):
        before = y.copy()
        for c in range(n_colours):
            local = scores + agreement(climb.links, n, y, scores.shape[1])
            here = np.take_along_axis(local, y[:, None], axis=1)[:, 0]
            y = np.where((colour == c) & (local.max(axis=1) > here), local.argmax(axis=1), y)
        if (y == before).all():
            break
        last = sweep
    return y, last


def agreement(links: VolumeLinks, n: int, y: Array, n_labels: int) -> Array:
    """Return the summed weights of the neighbours with each label, (S, L), for labels (S,) of image n."""
    one_hot = np.eye(n_labels)[y].reshape(*links.shape, n_labels)
    total = np.zeros_like(one_hot)
    for step, weights in zip(links.steps, links.weights, strict=True):
        first, second = ends_of(step, links.shape)
        shape = one_hot[first].shape[:3]
        own = weights[n if len(weights) > 1 else 0].astype(np.float64)
        weight = np.broadcast_to(own, math.prod(shape)).reshape(*shape, 1)
        total[first] += weight * one_hot[second]
        total[second] += weight * one_hot[first]
    return total.reshape(-1, n_labels)
