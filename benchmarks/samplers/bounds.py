"""Upper bounds on log Z and on the best score, compared with the exact values."""

from typing import Any

import numpy as np

import locpmap as lp

N_PERTURBED, N_FORESTS = 50, 8


def bounds_of(potentials: lp.Potentials, seed: int) -> dict[str, float]:
    """Return log Z and the excess of upper bounds, all per site, and the seconds of the exact values.

    "perturbation" is the mean over perturbed models of a bound on their best score: with independent Gumbel noise of
    mean 0 on the scores of sites, the expected best score is at least log Z (Hazan and Jaakkola 2012).
    """
    exact, n_sites = lp.infer(potentials, "exact"), potentials.n_sites
    trw = lp.infer(potentials, "trw")
    best = lp.infer(potentials, "max_product", n_forests=N_FORESTS)
    maxima = perturbed_bounds(potentials, seed)
    return {
        "log Z": exact.log_partition / n_sites,
        "trw": (trw.log_partition - exact.log_partition) / n_sites,
        "perturbation": float(maxima.mean() - exact.log_partition) / n_sites,
        "standard error": float(maxima.std(ddof=1) / N_PERTURBED**0.5) / n_sites,
        "best score, trw": (trw.bound - exact.score) / n_sites,
        "best score, max_product": (best.bound - exact.score) / n_sites,
        "seconds of exact": exact.seconds,
    }


def perturbed_bounds(potentials: lp.Potentials, seed: int) -> Any:
    """Return upper bounds on the best scores of models whose unary scores are perturbed, (N_PERTURBED,)."""
    height, width = potentials.structure.shape
    noise = np.random.default_rng(seed).gumbel(-np.euler_gamma, size=(N_PERTURBED, height, width, potentials.n_labels))
    weights = potentials.pairwise.weights
    assert weights is not None  # all cases are Potts models
    right, down = weights[0].reshape(height, width - 1), weights[1].reshape(height - 1, width)
    perturbed = lp.Potentials.grid(potentials.unary.reshape(height, width, -1) + noise, (right, down))
    return lp.infer(perturbed, "max_product", n_forests=N_FORESTS).bound
