"""The square-lattice Ising model: Kaufman's finite torus and Onsager's limit.

``Z(K) = Σ_s exp(K Σ_edges s_i s_j)`` with spins ±1.  A Potts weight w on two labels corresponds to
K = w / 2, because w · [y_i = y_j] = K s_i s_j + w / 2.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import quad

from .models import Floats, Ints, PairwiseModel

CRITICAL_COUPLING = float(np.log(1 + np.sqrt(2)) / 2)


def torus_edges(height: int, width: int) -> Ints:
    """Return the edges from every site to its right and lower neighbours with wrap-around, (2HW, 2)."""
    if min(height, width) < 3:
        raise ValueError(f"torus of {height} by {width}; expected sides of 3 at least, or edges would be doubled")
    site = np.arange(height * width).reshape(height, width)
    neighbours = (np.roll(site, -1, axis=1), np.roll(site, -1, axis=0))
    return np.concatenate([np.stack([site.ravel(), other.ravel()], axis=1) for other in neighbours])


def torus_model(height: int, width: int, coupling: float) -> PairwiseModel:
    """Return the Ising torus with labels 0, 1 for spins −1, +1."""
    edges = torus_edges(height, width)
    table = coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return PairwiseModel(np.zeros((height * width, 2)), edges, np.tile(table, (len(edges), 1, 1)))


def kaufman_log_partition(height: int, width: int, coupling: float) -> float:
    """Return log Z of the finite torus, coupling K > 0 (Kaufman 1949, eq. 60)."""
    log_terms, signs, _ = _four_products(height, width, coupling)
    shift = log_terms.max()
    prefactor = height * width / 2 * np.log(2 * np.sinh(2 * coupling)) - np.log(2)
    return float(prefactor + shift + np.log(signs @ np.exp(log_terms - shift)))


def kaufman_energy_per_site(height: int, width: int, coupling: float) -> float:
    """Return the energy ``−E[Σ_edges s_i s_j] / (HW) = −(d log Z / dK) / (HW)``."""
    log_terms, signs, derivatives = _four_products(height, width, coupling)
    weight = signs * np.exp(log_terms - log_terms.max())
    return float(-1 / np.tanh(2 * coupling) - weight @ derivatives / weight.sum() / (height * width))


def _four_products(height: int, width: int, coupling: float) -> tuple[Floats, Floats, Floats]:
    """Return log |Z_a|, sign of Z_a and d log |Z_a| / dK of Π 2cosh, Π 2sinh over odd γ, then over even γ."""
    double = 2 * coupling
    cosh_gamma = np.cosh(double) ** 2 / np.sinh(double) - np.cos(np.pi * np.arange(2 * width) / width)
    gamma = np.arccosh(np.maximum(cosh_gamma, 1))
    gamma[0] = double + np.log(np.tanh(coupling))  # changes sign at the critical coupling
    derivative = np.empty_like(gamma)
    derivative[1:] = 2 * np.cosh(double) * (2 - 1 / np.tanh(double) ** 2) / np.sinh(gamma[1:])
    derivative[0] = 2 + 2 / np.sinh(double)
    log_terms, signs, derivatives = np.empty(4), np.ones(4), np.empty(4)
    for a, start in ((0, 1), (2, 0)):
        x, dx = height / 2 * gamma[start::2], height / 2 * derivative[start::2]
        log_terms[a] = np.logaddexp(x, -x).sum()
        derivatives[a] = (dx * np.tanh(x)).sum()
        log_terms[a + 1] = (np.abs(x) + np.log(-np.expm1(-2 * np.abs(x)))).sum()
        derivatives[a + 1] = (dx / np.tanh(x)).sum()
        signs[a + 1] = np.prod(np.sign(x))
    return log_terms, signs, derivatives


def onsager_free_energy(coupling: float) -> float:
    """Return ``lim log Z / (number of sites)`` of the infinite lattice (Onsager 1944)."""
    modulus = 2 * np.sinh(2 * coupling) / np.cosh(2 * coupling) ** 2

    def integrand(angle: float) -> float:
        return float(np.log((1 + np.sqrt(max(0.0, 1 - (modulus * np.sin(angle)) ** 2))) / 2))

    return float(np.log(2 * np.cosh(2 * coupling)) + quad(integrand, 0, np.pi / 2, limit=200)[0] / np.pi)
