"""Checks that Monte Carlo estimates agree with exact values, with tolerances from computed standard errors.

The checks raise AssertionError.  Each fails with probability about ERROR when the code is correct.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from .models import Floats

ERROR = 1e-6
MIN_EXPECTED = 5  # below this expected count, the distribution is too skewed for a z score


def z_bound(n_comparisons: int, error: float = ERROR) -> float:
    """Return the bound that max |z| exceeds with probability at most `error` (Bonferroni; 4.9 for one z)."""
    return float(stats.norm.isf(error / (2 * n_comparisons)))


def z_scores(counts: npt.ArrayLike, probability: npt.ArrayLike, n_draws: int) -> Floats:
    """Return standardised binomial counts."""
    counts, probability = np.asarray(counts, np.float64), np.asarray(probability, np.float64)
    return (counts - n_draws * probability) / np.sqrt(n_draws * probability * (1 - probability))


def check_z(z: npt.ArrayLike, correlation: Floats | None = None) -> None:
    """Check that no |z| is too large and that z² is 1 on average, which also detects errors stated too large.

    The z scores may be correlated.  With correlation ρ the mean of m values z² has variance 2 Σ ρ² / m², as if only
    ν = m² / Σ ρ² of them were independent.  Then ν times the mean is approximately χ² with ν degrees of freedom.
    """
    z = np.atleast_1d(np.asarray(z, np.float64))
    bound = z_bound(len(z))
    assert np.isfinite(z).all(), "a z score is not finite"
    assert np.abs(z).max() < bound, f"max |z| is {np.abs(z).max():.2f} over {len(z)}; expected below {bound:.2f}"
    freedom = len(z) if correlation is None else len(z) ** 2 / (correlation**2).sum()
    mean_square = float((z**2).mean())
    tail = 2 * min(stats.chi2.cdf(freedom * mean_square, freedom), stats.chi2.sf(freedom * mean_square, freedom))
    error = np.sqrt(2 / freedom)
    assert len(z) == 1 or tail > ERROR, f"mean of z² is {mean_square:.3f} over {len(z)}; expected 1 ± {error:.3f}"


def check_events(hits: npt.NDArray[np.bool_], probability: Floats) -> None:
    """Check event frequencies; hits (m, D) marks which of m events, possibly dependent, occur in each draw."""
    n_draws = hits.shape[1]
    assert not hits[probability == 0].any(), "an impossible event happened"
    expected = n_draws * np.minimum(probability, 1 - probability)
    testable = expected > MIN_EXPECTED
    assert testable.any(), "no event is expected often enough to be tested"
    z = z_scores(hits[testable].sum(axis=1), probability[testable], n_draws)
    with np.errstate(invalid="ignore"):  # an event that never occurred has undefined correlation
        correlation = np.nan_to_num(np.atleast_2d(np.corrcoef(hits[testable])))
    np.fill_diagonal(correlation, 1.0)
    check_z(z, correlation)


def check_mean(values: npt.ArrayLike, expected: float) -> None:
    """Check that the mean of independent values agrees with the expected one."""
    values = np.asarray(values, np.float64)
    error = values.std(ddof=1) / np.sqrt(len(values))
    difference = float(values.mean() - expected)
    if error == 0:  # all values are equal, and must equal the expected one up to rounding
        assert abs(difference) < 1e-9 * abs(expected), f"z is infinite: all values are {values[0]}, not {expected}"
    else:
        check_z(difference / error)


def chi_square_p_value(counts: npt.ArrayLike, probability: npt.ArrayLike) -> float:
    """Return the p value of multinomial counts; 0 if an impossible cell is hit.

    The rarest cells are pooled until every cell, including the pool, has an expected count above MIN_EXPECTED.
    """
    counts, probability = np.ravel(counts), np.ravel(probability)
    if counts[probability == 0].any():
        return 0.0
    rarest_first = np.argsort(probability)
    counts, expected = counts[rarest_first], counts.sum() * probability[rarest_first]
    n_rare = int((expected <= MIN_EXPECTED).sum())
    n_pooled = max(n_rare, int(np.searchsorted(np.cumsum(expected), MIN_EXPECTED, side="right")) + 1)
    counts = np.append(counts[n_pooled:], counts[:n_pooled].sum())
    expected = np.append(expected[n_pooled:], expected[:n_pooled].sum())
    if len(counts) == 1:
        return 1.0
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def batch_means_error(chain: npt.ArrayLike, n_batches: int = 30) -> Floats:
    """Return the standard error of the mean over axis 0 of a correlated chain, from the means of long batches."""
    chain = np.asarray(chain, np.float64)
    length = len(chain) // n_batches
    means = chain[: length * n_batches].reshape(n_batches, length, *chain.shape[1:]).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(n_batches)
