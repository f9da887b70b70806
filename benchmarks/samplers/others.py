"""Samplers that the library does not have, in NumPy, for binary grids of Potts weights.

Labels y in {0, 1} have the score ``a·y + y·J·y / 2``, so that a flip of site i changes it by
``d_i = (1 - 2 y_i) (a_i + (J y)_i)``: the gradient of the score is exact.  All samplers run many chains at once.
"""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.special import expit, log_expit, logsumexp

import locpmap as lp

Floats = npt.NDArray[np.float64]
N_CHAINS = 32
BURN_IN = 0.2  # fraction of the seconds


def quadratic(potentials: lp.Potentials) -> tuple[Floats, csr_array]:
    """Return a (S, 1) and J (S, S)."""
    model = potentials.model
    weight = np.broadcast_to(model.features[0, :, 0], len(model.edges))
    both = np.concatenate([model.edges, model.edges[:, ::-1]])
    coupling = coo_array((np.tile(2 * weight, 2), (both[:, 0], both[:, 1])), shape=(len(model.order),) * 2).tocsr()
    bias = (model.unary[0, :, 1] - model.unary[0, :, 0]).astype(np.float64)
    return (bias - coupling.sum(axis=1) / 2)[:, None], coupling


Gains = Callable[[Floats], Floats]  # labels (S, C) -> d
Step = Callable[[Floats, Floats, float], tuple[Floats, Floats]]  # labels, d, step size -> labels, accepted


def gains_of(potentials: lp.Potentials) -> Gains:
    """Return the function from labels to d."""
    bias, coupling = quadratic(potentials)
    return lambda y: (1 - 2 * y) * (bias + coupling @ y)


def flip_one(rng: np.random.Generator, gains: Gains) -> Step:
    """Return a step of Gibbs-with-gradients, which ignores the step size."""

    def step(y: Floats, d: Floats, _: float) -> tuple[Floats, Floats]:
        site = (d / 2 + rng.gumbel(size=d.shape)).argmax(axis=0)
        here = (site, np.arange(y.shape[1]))
        new = y.copy()
        new[here] = 1 - new[here]
        back = gains(new)
        ratio = d[here] + (back[here] / 2 - logsumexp(back / 2, axis=0)) - (d[here] / 2 - logsumexp(d / 2, axis=0))
        return new, np.log(rng.random(y.shape[1])) < ratio

    return step


def flip_all(rng: np.random.Generator, gains: Gains) -> Step:
    """Return a step of DMALA."""

    def step(y: Floats, d: Floats, size: float) -> tuple[Floats, Floats]:
        odds = d / 2 - 1 / (2 * size)
        flips = rng.random(y.shape) < expit(odds)
        new = np.where(flips, 1 - y, y)
        back = gains(new)
        odds_back = back / 2 - 1 / (2 * size)
        # The score is quadratic, so its change is the mean of the first-order changes at both ends.
        change = ((d - back) * flips).sum(axis=0) / 2
        there, return_ = (np.where(flips, log_expit(o), log_expit(-o)).sum(axis=0) for o in (odds, odds_back))
        return new, np.log(rng.random(y.shape[1])) < change + return_ - there

    return step


def gibbs_with_gradients(potentials: lp.Potentials, seconds: float, seed: int) -> Floats:
    """Flip one site, chosen in proportion to exp(d / 2), with a Metropolis-Hastings test (Grathwohl et al. 2021)."""
    return _run(potentials, seconds, seed, flip_one, None)


def dmala(potentials: lp.Potentials, seconds: float, seed: int) -> Floats:
    """Flip all sites independently, with log odds d / 2 - 1 / (2 size), and test the whole move (Zhang et al. 2022)."""
    return _run(potentials, seconds, seed, flip_all, 0.57)


def _run(
    potentials: lp.Potentials, seconds: float, seed: int, make: Callable[..., Step], target: float | None
) -> Floats:
    """Run chains for some seconds; return the mean labels (S,) after burn-in, in which the step size is adapted."""
    rng, gains = np.random.default_rng(seed), gains_of(potentials)
    step, size = make(rng, gains), 0.3
    y = rng.integers(0, 2, (potentials.unary[0].shape[0], N_CHAINS)).astype(np.float64)
    d, total, n = gains(y), np.zeros(y.shape), 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        new, accepted = step(y, d, size)
        y = np.where(accepted, new, y)
        d = gains(y)
        if elapsed > BURN_IN * seconds:
            total += y
            n += 1
        elif target is not None:
            size *= 1.02 if accepted.mean() > target else 1 / 1.02
    return total.mean(axis=1) / max(n, 1)


def coupling_from_the_past(potentials: lp.Potentials, seconds: float, seed: int) -> Floats | None:
    """Return the mean of exact samples of an attractive model (Propp and Wilson 1996), or None if none is complete."""
    bias, coupling = quadratic(potentials)
    rng, colours = np.random.default_rng(seed), potentials.structure.colours()
    classes = [np.flatnonzero(colours == c) for c in (0, 1)]
    updates = [(sites, bias[sites], coupling[sites]) for sites in classes]
    began = time.perf_counter()
    found: list[Floats] = []
    while time.perf_counter() - began < seconds:
        seeds: list[int] = []
        lower, upper = np.zeros((len(bias), N_CHAINS)), np.ones((len(bias), N_CHAINS))
        while (lower != upper).any():
            seeds.append(int(rng.integers(2**63)))
            lower, upper = np.zeros_like(lower), np.ones_like(upper)
            for k in reversed(range(len(seeds))):  # seeds[k] drives the 2^(k - 1) sweeps before those of seeds[k - 1]
                replay = np.random.default_rng(seeds[k])
                for _ in range(2 ** max(k - 1, 0)):
                    if time.perf_counter() - began > seconds:
                        return np.mean(found, axis=(0, 2)) if found else None
                    uniform = replay.random(lower.shape)
                    for sites, constant, weights in updates:
                        lower[sites] = uniform[sites] < expit(constant + weights @ lower)
                        upper[sites] = uniform[sites] < expit(constant + weights @ upper)
        found.append(lower)
    return np.mean(found, axis=(0, 2)) if found else None
