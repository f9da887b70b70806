"""Coloured ICM on perturbed unaries for any graph and any table; see the reference for the definition.

A sweep skips sites none of whose neighbours changed since their last visit, which leaves the trajectory as it is.
Memory per call: the perturbed unaries of one sample, S·L values.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.noise import gumbel_row, pick, site_words, uniform
from locpmap.kernels.numba.scores import add_neighbours, best_label
from locpmap.kernels.perturbation import DROP, LOGISTIC, PERTURBED, PLAIN, RANDOM
from locpmap.kernels.reference import noise as streams

_DROP, _LOGISTIC, _START, _START_BITS = streams.DROP, streams.LOGISTIC, streams.START, streams.START_BITS


@njit(nogil=True, cache=True, error_model="numpy")
def climb_sites(model, perturbation, start, given, max_sweeps, first_image, lo, hi, first_sample, labels):
    """Fill ``labels`` (hi - lo, S, R); returns the last sweep that changed anything, (hi - lo, R)."""
    n_sites, n_labels = model.unary.shape[1], model.unary.shape[2]
    n_samples = labels.shape[2]
    sweeps = np.zeros((hi - lo, n_samples), np.int32)
    unary = np.empty((n_sites, n_labels), model.unary.dtype)
    y = np.empty(n_sites, np.int32)
    for n in range(lo, hi):
        for s in range(n_samples):
            image, sample = first_image + n, first_sample + s
            for i in range(n_sites):
                perturb(unary[i], model.unary[n, i], perturbation, image, sample, model.site_id[i])
                if start == RANDOM:
                    y[i] = random_label(model.unary[n, i], perturbation, image, sample, model.site_id[i])
                elif start == PERTURBED:
                    y[i] = best_label(unary[i], 0)
                else:
                    y[i] = given[n, i]
            sweeps[n - lo, s] = climb(model, n, unary, y, max_sweeps)
            for i in range(n_sites):
                labels[n - lo, i, s] = y[i]
    return sweeps


@njit(nogil=True, error_model="numpy")
def climb(model, n, unary, y, max_sweeps):
    """Sweep until nothing changes; ``y`` is changed in place."""
    scores = np.empty(unary.shape[1])
    dirty = np.ones(len(y), np.bool_)
    last = 0
    for sweep in range(1, max_sweeps + 1):
        for i in model.order:
            if not dirty[i]:
                continue
            dirty[i] = False
            scores[:] = unary[i]
            add_neighbours(scores, model, n, i, y)
            best = best_label(scores, y[i])
            if best != y[i]:
                y[i] = best
                last = sweep
                for slot in range(model.indptr[i], model.indptr[i + 1]):
                    dirty[model.neighbour[slot]] = True
        if last < sweep:
            break
    return last


@njit(error_model="numpy")
def perturb(out, unary, perturbation, image, sample, site):
    """The perturbed unaries of one site, (L,)."""
    scheme, amount, k0, k1 = perturbation
    if scheme == PLAIN:
        gumbel_row(out, k0, k1, image, sample, site)
        for k in range(len(out)):
            out[k] = unary[k] + amount * out[k]
        return
    out[:] = unary
    if scheme == LOGISTIC:
        u = uniform(pick(site_words(k0, k1, _LOGISTIC, image, sample >> 2, site, 0), sample & 3))
        out[1] -= amount * math.log(u / (1 - u))
    elif scheme == DROP and uniform(site_words(k0, k1, _DROP, image, sample, site, 0)[0]) < amount:
        for k in range(len(out)):
            if out[k] > -np.inf:
                out[k] = 0


@njit(error_model="numpy")
def random_label(unary, perturbation, image, sample, site):
    """A uniformly random allowed label."""
    scheme, _, k0, k1 = perturbation
    if scheme == LOGISTIC:
        if unary[0] == -np.inf or unary[1] == -np.inf:
            return np.int64(unary[0] == -np.inf)
        bits = pick(site_words(k0, k1, _START_BITS, image, sample >> 7, site, 0), (sample >> 5) & 3)
        return np.int64((bits >> np.uint32(sample & 31)) & np.uint32(1))
    n_allowed = 0
    for k in range(len(unary)):
        n_allowed += unary[k] > -np.inf
    word = np.uint64(site_words(k0, k1, _START, image, sample, site, 0)[0])
    nth = np.int64((word * np.uint64(n_allowed)) >> np.uint64(32))
    k = -1
    while nth >= 0:
        k += 1
        nth -= unary[k] > -np.inf
    return np.int64(k)
