"""LocPMAP climb on a 4-connected grid with Potts weights >= 0, in the lazy noise scheme (see `noise`)."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.perturbation import PERTURBED, RANDOM, GridClimb, VolumeClimb
from locpmap.kernels.reference import noise


def climb_potts(climb: GridClimb, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); return the number of the last sweep that changed a label, (n, R)."""
    sweeps = np.zeros((len(labels), labels.shape[2]), np.int32)
    for n in range(len(labels)):
        for s in range(labels.shape[2]):
            labels[n, :, s], sweeps[n, s] = draw(climb, n, s, climb.unary[n])
    return sweeps


def draw(climb: GridClimb, n: int, s: int, unary: Array) -> tuple[Array, int]:
    """Draw sample s of image n from its unaries (S, L); return labels (S,) and the last sweep with a change."""
    return ascend(climb, n, *perturbed_start(climb, n, s, unary, site_numbers(climb)))


def perturbed_start(climb: GridClimb | VolumeClimb, n: int, s: int, unary: Array, sites: Array) -> tuple[Array, Array]:
    """Return the perturbed scores (S, L) of sample s of image n, and the labels (S,) from which it climbs."""
    which = ((int(climb.k0), int(climb.k1)), climb.first_image + n, climb.first_sample + s, sites)
    scores = unary.astype(np.float64)
    if climb.temperature > 0:
        scores = noise.perturbed_lazy(scores, climb.temperature, *which)
    if climb.start == RANDOM:
        return scores, noise.lazy_start(unary, *which)
    return scores, scores.argmax(axis=1) if climb.start == PERTURBED else climb.given[n]


def site_numbers(climb: GridClimb) -> Array:
    """Return the index of every site in the whole grid, (S,)."""
    rows, columns = climb.row + np.arange(climb.right.shape[1]), climb.column + np.arange(climb.down.shape[2])
    return (rows[:, None] * climb.full_width + columns).ravel()


def ascend(climb: GridClimb, n: int, scores: Array, y: Array) -> tuple[Array, int]:
    """Climb from ``y`` (S,) on perturbed scores (S, L) of image n; return labels and the last sweep with a change."""
    height, width, n_labels = climb.right.shape[1], climb.down.shape[2], scores.shape[1]
    right, down = climb.right[n if len(climb.right) > 1 else 0], climb.down[n if len(climb.down) > 1 else 0]
    colour = (climb.row + climb.column + np.add.outer(np.arange(height), np.arange(width))) % 2
    y, last = y.reshape(height, width).astype(np.int64), 0
    for sweep in range(1, climb.max_sweeps + 1):
        before = y.copy()
        for c in (0, 1):
            local = scores.reshape(height, width, n_labels) + agreement(y, right, down, n_labels)
            best = local.argmax(axis=2)
            here = np.take_along_axis(local, y[:, :, None], axis=2)[:, :, 0]
            y = np.where((colour == c) & (local.max(axis=2) > here), best, y)
        if (y == before).all():
            break
        last = sweep
    return y.ravel(), last


def agreement(y: Array, right: Array, down: Array, n_labels: int) -> Array:
    """Return the summed weights of the neighbours with each label, (H, W, L)."""
    one_hot = np.eye(n_labels)[y]
    total = np.zeros_like(one_hot)
    total[:, 1:] += right[:, :, None] * one_hot[:, :-1]
    total[:, :-1] += right[:, :, None] * one_hot[:, 1:]
    total[1:] += down[:, :, None] * one_hot[:-1]
    total[:-1] += down[:, :, None] * one_hot[1:]
    return total
