"""Perturb-and-MAP: perturb the scores, find the global maximum, repeat.

With independent Gumbel noise on every joint labelling, the maximum is an exact sample of p.  This needs one noise value
per labelling.  With noise on the labels of single sites instead (Papandreou & Yuille 2011, Hazan & Jaakkola 2012), the
maximum is found by graph cut, and its distribution approximates p.

With noise of mean 0, the expected value of the perturbed maximum is log Z for joint noise, and an upper bound on log Z
for noise on sites (Hazan & Jaakkola 2012).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, TooLargeError
from locpmap.inference.decoder import IMPOSSIBLE, Outcome, Problem
from locpmap.inference.graph_cut import best_cut, check_attraction
from locpmap.inference.sampling import Tally, TallySampler
from locpmap.kernels.model import label_dtype
from locpmap.kernels.reference.noise import PLAIN, gumbel, uniform, words
from locpmap.kernels.reference.scores import edge_tables, pair_scores
from locpmap.kernels.spec import Span, Work
from locpmap.result import BoundKind

MAX_LABELLINGS = 2**16


@dataclass
class _State(Tally):
    maxima: Array = field(kw_only=True)  # (N, M)
    kind: BoundKind = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class PerturbAndMAP(TallySampler):
    """Perturb-and-MAP: votes over global maxima of randomly perturbed scores.

    ``probability`` is the fraction of samples with the label.  ``log_partition`` is the mean of the perturbed maxima,
    and ``log_partition_error`` its standard error.  With joint noise the mean estimates log Z, with noise on sites an
    upper bound.

    Args:
        n_samples (int, default 50): Number of samples to draw per image.
        perturbation (str, default "auto"): Where noise is added.  "joint" perturbs joint labellings and gives exact
            samples of the model, for up to 65,536 labellings per image.  "sites" perturbs single sites and requires an
            attractive model with two labels.  "auto" is joint if the model is small enough, otherwise sites.
        keep_samples (bool, default False): Return the samples in ``result.samples``, (M, ...).

    Notes:
        :func:`infer` raises TooLargeError if the model is too large, and "joint" is requested or, for more than two
        labels, required.  The decoder runs on the CPU only.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result = lp.infer(pot, lp.PerturbAndMAP(n_samples=500), seed=0)
        >>> exact = lp.infer(pot, "exact")
        >>> bool(np.abs(result.probability - exact.probability).max() < 0.1)
        True

    See Also:
        :class:`LocPMAP`, :class:`PerturbAndMaxProduct`, :class:`GraphCut`
    """

    name: ClassVar[str] = "perturb_and_map"
    n_samples: int = 50
    perturbation: str = "auto"
    keep_samples: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.perturbation not in ("auto", "joint", "sites"):
            raise InputError(f"perturbation is {self.perturbation!r}, expected 'auto', 'joint' or 'sites'")

    def init(self, problem: Problem) -> _State:
        two = problem.potentials.n_labels == 2
        bits = np.log2((problem.potentials.unary > -np.inf).sum(axis=2)).sum(axis=1).max()
        small = bits <= np.log2(MAX_LABELLINGS) + 1e-9
        if self.perturbation == "sites" and not two:
            raise InputError(f"perturbation='sites' needs two labels, but the model has {problem.potentials.n_labels}")
        if not small and (self.perturbation == "joint" or not two):
            raise TooLargeError(
                f"perturb_and_map needs at most {MAX_LABELLINGS} joint labellings, or two labels that attract and noise"
                f" on the sites, but the model has {problem.potentials.n_labels} labels and 2^{bits:.1f} labellings"
            )
        joint = small and self.perturbation != "sites"
        maxima = np.empty((problem.potentials.n_images, self.n_samples))
        work = (_joint_sampler if joint else _site_sampler)(problem, maxima)
        totals = problem.kernels.start_totals(problem.view, "votes", self.n_samples)
        kind = BoundKind.ESTIMATE if joint else BoundKind.UPPER_ESTIMATE
        return _State(partial(problem.kernels.draw_by, work), 1, totals, maxima=maxima, kind=kind)

    def finish(self, problem: Problem, state: _State) -> Outcome:  # type: ignore[override]
        maxima = state.maxima[:, : state.n_samples]
        outcome = super().finish(problem, state)
        outcome.log_partition, outcome.log_partition_kind = maxima.mean(axis=1), state.kind
        spread = maxima.std(axis=1, ddof=1) if state.n_samples > 1 else np.full(len(maxima), np.inf)
        outcome.log_partition_error = spread / np.sqrt(state.n_samples)
        return outcome


def _joint_sampler(problem: Problem, maxima: Array) -> Work:
    """Return a sampler that enumerates the allowed labellings, with noise keyed by the first site.

    It fills ``maxima`` (N, M) with the maxima of scores plus noise of mean 0.
    """
    site = int(problem.model.site_id[0])

    def draw(part: Span) -> tuple[Array, Array]:
        lo, hi, first, count = part
        labels = np.empty((hi - lo, problem.potentials.n_sites, count), label_dtype(problem.potentials.n_labels))
        for n in range(lo, hi):
            scores, every = _joint_scores(problem, n)
            per_draw = max(1, MAX_LABELLINGS // len(scores))
            for s in range(0, count, per_draw):
                samples = np.arange(first + s, first + min(s + per_draw, count))
                noise = joint_gumbel(problem.key, problem.first_image + n, samples, site, len(scores))
                noise += scores
                best = noise.argmax(axis=1)
                maxima[n, samples] = noise[np.arange(len(best)), best] - np.euler_gamma
                labels[n - lo, :, s : s + per_draw] = [y[best] if len(y) > 1 else y.repeat(len(best)) for y in every]
        return labels, np.zeros((hi - lo, count))

    return draw


def joint_gumbel(key: tuple[int, int], image: int, samples: Array, site: int, size: int) -> Array:
    """Return Gumbel noise of one site with ``size`` labels, (len(samples), size), in one call."""
    group, sample = np.meshgrid(np.arange((size + 3) // 4), samples)
    sites = np.full(group.size, site)
    word = words(key, PLAIN, image, sample.ravel(), sites, group.ravel())  # type: ignore[arg-type]
    return -np.log(-np.log(uniform(word.T.reshape(len(samples), -1)[:, :size])))


def _joint_scores(problem: Problem, image: int) -> tuple[Array, list[Array]]:
    """Return the scores (J,) of all allowed labellings, and the labels of every site: (J,), or (1,) if only one."""
    model = problem.model
    choices = [np.flatnonzero(unary > -np.inf) for unary in model.unary[image]]
    sizes = [len(choice) for choice in choices]
    number = np.arange(np.prod(sizes))
    slower = np.cumprod([1, *sizes[:0:-1]])[::-1]  # number of labellings between two changes of a site's label
    every = [c[number // step % len(c)] if len(c) > 1 else c for c, step in zip(choices, slower, strict=True)]
    scores = np.zeros(len(number))
    for unary, labels in zip(model.unary[image], every, strict=True):
        scores += unary[labels]
    tables = edge_tables(model, image, np.arange(len(model.edges)))
    for (i, j), table in zip(model.edges, tables, strict=True):
        scores += table[every[i], every[j]]
    if scores.max() == -np.inf:
        raise InputError(IMPOSSIBLE)
    return scores, every


def _site_sampler(problem: Problem, maxima: Array) -> Work:
    """Return a sampler that solves graph cuts with noise on the two labels of each site; ``maxima`` as above."""
    check_attraction(problem)
    model, sites = problem.model, np.arange(problem.potentials.n_sites)
    free, only = (model.unary > -np.inf).all(axis=2), np.zeros(1, np.int64)

    def draw(part: Span) -> tuple[Array, Array]:
        lo, hi, first, count = part
        samples = np.zeros((hi - lo, len(sites), count), label_dtype(2))
        for n in range(lo, hi):
            alone = problem.potentials.part(slice(n, n + 1)).view
            for s in range(first, first + count):
                noise = gumbel(problem.key, problem.first_image + n, s, model.site_id, 2)
                labels = np.zeros((1, len(sites)), np.int64)
                best_cut(problem, alone.with_unary(model.unary[n : n + 1] + noise), labels, only)
                y = samples[n - lo, :, s - first] = labels[0]
                pairs = pair_scores(model, n, y[model.edges[:, 0]], y[model.edges[:, 1]])
                chosen = np.where(free[n], noise[sites, y] - np.euler_gamma, 0.0)
                maxima[n, s] = model.unary[n][sites, y].sum(dtype=np.float64) + pairs.sum() + chosen.sum()
        return samples, np.zeros((hi - lo, count))

    return draw
