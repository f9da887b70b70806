"""Climbs: iterated conditional modes (ICM) on perturbed unaries, by colour classes, for any graph and any table.

A sweep visits the colour classes in turn and assigns every site of a class its best label given its neighbours.  Sweeps
repeat until no label changes.  A label that attains the maximum is retained; other ties go to the smallest label.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import DROP, LAZY, LOGISTIC, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.scores import local_scores


def climb_sites(
    model: Model,
    perturbation: Perturbation,
    start: int,
    given: Array,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: Array,
) -> Array:
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a label, (hi - lo, R)."""
    sweeps = np.zeros((hi - lo, labels.shape[2]), np.int32)
    for n in range(lo, hi):
        for s in range(labels.shape[2]):
            image, sample = first_image + n, first_sample + s
            unary, y = begin(model, n, perturbation, start, given, image, sample)
            sweeps[n - lo, s] = climb(model, n, unary, y, max_sweeps)
            labels[n - lo, :, s] = y
    return sweeps


def begin(
    model: Model, n: int, perturbation: Perturbation, start: int, given: Array, image: int, sample: int
) -> tuple[Array, Array]:
    """Return the perturbed unaries (S, L) of a sample of image n and the start labels (S,) of its climb."""
    unary = perturbed(model.unary[n], perturbation, image, sample, model.site_id)
    if start == RANDOM:
        return unary, start_labels(model.unary[n], perturbation, image, sample, model.site_id)
    return unary, unary.argmax(axis=1) if start == PERTURBED else given[n].astype(np.int64)


def climb(model: Model, image: int, unary: Array, y: Array, max_sweeps: int) -> int:
    """Sweep until ``y`` (S,), updated in place, is unchanged; return the number of the last sweep that changed it."""
    last = 0
    for sweep in range(1, max_sweeps + 1):
        for begin, stop in zip(model.class_ptr[:-1], model.class_ptr[1:], strict=True):
            sites = model.order[begin:stop]
            scores = local_scores(model, y, image, unary)[sites]
            best = scores.argmax(axis=1)
            here = np.arange(len(sites))
            better = scores[here, best] > scores[here, y[sites]]
            if better.any():
                y[sites[better]] = best[better]
                last = sweep
        if last < sweep:
            break
    return last


def perturbed(unary: Array, perturbation: Perturbation, image: int, sample: int, sites: Array) -> Array:
    """Return the perturbed unaries of a sample, (S, L), in the precision of ``unary``."""
    scheme, amount, *halves = perturbation
    key = (int(halves[0]), int(halves[1]))
    if scheme == PLAIN:
        scores = noise.perturbed_plain(unary, amount, key, image, sample, sites)
    elif scheme in (LOGISTIC, LAZY):
        scores = noise.perturbed_lazy(unary, amount, key, image, sample, sites)
    elif scheme == DROP:
        drop = noise.uniform(noise.words(key, noise.DROP, image, sample, sites)[0]) < amount
        scores = np.where(drop[:, None] & (unary > -np.inf), 0, unary)
    else:
        scores = unary
    return scores.astype(unary.dtype)


def start_labels(unary: Array, perturbation: Perturbation, image: int, sample: int, sites: Array) -> Array:
    """Return a uniformly random allowed label per site."""
    key = (int(perturbation.k0), int(perturbation.k1))
    if perturbation.scheme in (LOGISTIC, LAZY):
        return noise.lazy_start(unary, key, image, sample, sites)
    return noise.start_labels(unary, noise.words(key, noise.START, image, sample, sites)[0])
