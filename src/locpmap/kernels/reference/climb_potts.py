"""LocPMAP climb on a 4-connected grid with Potts weights >= 0, in the lazy noise scheme (see `noise`)."""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.perturbation import PERTURBED, RANDOM, GridClimb
from locpmap.kernels.reference import noise


def climb_potts(climb: GridClimb, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); return the number of the last sweep that changed a label, (n, R)."""
    unary, right, down = climb.unary, climb.right, climb.down
    n_images, _, n_labels = unary.shape
    height, width, key = right.shape[1], down.shape[2], (int(climb.k0), int(climb.k1))
    rows, columns = climb.row + np.arange(height)[:, None], climb.column + np.arange(width)[None]
    sites = (rows * climb.full_width + columns).ravel()
    colour = (rows + columns) % 2
    sweeps = np.zeros((n_images, labels.shape[2]), np.int32)
    for n in range(n_images):
        beside, below = right[n if len(right) > 1 else 0], down[n if len(down) > 1 else 0]
        for s in range(labels.shape[2]):
            image, sample = climb.first_image + n, climb.first_sample + s
            scores = noise.perturbed_lazy(unary[n].astype(np.float64), climb.temperature, key, image, sample, sites)
            if climb.start == RANDOM:
                y = noise.lazy_start(unary[n], key, image, sample, sites)
            else:
                y = scores.argmax(axis=1) if climb.start == PERTURBED else climb.given[n]
            y = y.reshape(height, width).astype(np.int64)
            for sweep in range(1, climb.max_sweeps + 1):
                before = y.copy()
                for c in (0, 1):
                    local = scores.reshape(height, width, n_labels) + agreement(y, beside, below, n_labels)
                    best = local.argmax(axis=2)
                    here = np.take_along_axis(local, y[:, :, None], axis=2)[:, :, 0]
                    y = np.where((colour == c) & (local.max(axis=2) > here), best, y)
                if (y == before).all():
                    break
                sweeps[n, s] = sweep
            labels[n, :, s] = y.ravel()
    return sweeps


def agreement(y: Array, right: Array, down: Array, n_labels: int) -> Array:
    """Return the summed weights of the neighbours with each label, (H, W, L)."""
    one_hot = np.eye(n_labels)[y]
    total = np.zeros_like(one_hot)
    total[:, 1:] += right[:, :, None] * one_hot[:, :-1]
    total[:, :-1] += right[:, :, None] * one_hot[:, 1:]
    total[1:] += down[:, :, None] * one_hot[:-1]
    total[:-1] += down[:, :, None] * one_hot[1:]
    return total
