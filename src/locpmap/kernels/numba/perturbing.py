"""Perturbed unaries and start labels of a sample: Numba version of the helpers in `reference.climb_sites`."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner
from locpmap.kernels.numba.noise import logistic_word, pick, site_words, uniform
from locpmap.kernels.perturbation import DROP, LOGISTIC, PERTURBED, PLAIN, RANDOM
from locpmap.kernels.reference import noise as streams

_PLAIN, _DROP = streams.PLAIN, streams.DROP
_START, _START_BITS = streams.START, streams.START_BITS


@inner
def perturb(noisy, y, unary, n, perturbation, start, given, image, sample, site_id):
    """Fill the perturbed unaries ``noisy`` (S, L) and start labels ``y`` (S,) of one sample of image n."""
    perturb_unaries(noisy, unary, n, perturbation, image, sample, site_id)
    if start == RANDOM:
        random_labels(y, unary, n, perturbation, image, sample, site_id)
        return
    for i in range(len(y)):
        if start == PERTURBED:
            y[i] = 0
            for k in range(1, noisy.shape[1]):
                if noisy[i, k] > noisy[i, y[i]]:
                    y[i] = k
        else:
            y[i] = given[n, i]


@inner
def perturb_unaries(noisy, unary, n, perturbation, image, sample, site_id):
    """Fill ``noisy`` with the perturbed unaries of every site."""
    scheme, amount, k0, k1 = perturbation
    n_labels = noisy.shape[1]
    for i in range(len(noisy)):
        for k in range(n_labels):
            noisy[i, k] = unary[n, i, k]
        if scheme == PLAIN:
            for group in range((n_labels + 3) // 4):
                words = site_words(k0, k1, _PLAIN, image, sample, site_id[i], group)
                for j in range(min(4, n_labels - 4 * group)):
                    noisy[i, 4 * group + j] -= amount * math.log(-math.log(uniform(pick(words, j))))
        elif scheme == LOGISTIC:
            u = (np.float64(logistic_word(k0, k1, image, sample, site_id[i])) + 0.5) * 2.0**-32
            noisy[i, 1] -= amount * math.log(u / (1 - u))
        elif scheme == DROP and uniform(site_words(k0, k1, _DROP, image, sample, site_id[i], 0)[0]) < amount:
            for k in range(n_labels):
                noisy[i, k] = 0 if noisy[i, k] > -np.inf else noisy[i, k]


@inner
def random_labels(y, unary, n, perturbation, image, sample, site_id):
    """Fill ``y`` with a uniformly random allowed label per site."""
    scheme, _, k0, k1 = perturbation
    for i in range(len(y)):
        n_allowed = 0
        for k in range(unary.shape[2]):
            n_allowed += unary[n, i, k] > -np.inf
        if scheme == LOGISTIC:
            bits = pick(site_words(k0, k1, _START_BITS, image, sample >> 7, site_id[i], 0), (sample >> 5) & 3)
            nth = np.int64((bits >> np.uint32(sample & 31)) & np.uint32(1)) if n_allowed == 2 else 0
        else:
            word = np.uint64(site_words(k0, k1, _START, image, sample, site_id[i], 0)[0])
            nth = np.int64((word * np.uint64(n_allowed)) >> np.uint64(32))
        label = -1
        while nth >= 0:
            label += 1
            nth -= unary[n, i, label] > -np.inf
        y[i] = label
