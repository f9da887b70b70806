"""Coverage and scores of quantities of sampled label maps: areas in windows, components, perimeter, and whole maps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.learning.proper_scores import PERIMETER, UNCERTAIN, Truth, crps, energy_score, name_of
from locpmap.measuring.quantities import components

LEAST_COMPONENT = 12  # pixels
LEVEL = 0.9
COMPONENTS = "components"


@dataclass(frozen=True)
class MapScore:
    """Scores of the samples of one image: NaN where nothing could be scored."""

    coverage: dict[str, float]  # fraction of 90 % intervals that contain the true value
    ranks: dict[str, float]  # the same with ties at random, see `in_central_ranks`
    crps: dict[str, float]
    energy: float
    n_labels: float  # mean number of labels in a sample


def map_score(samples: Array, truth: Array, n_labels: int) -> MapScore:
    """Score samples (M, H, W) against a map (H, W) with -1 at void pixels, which are ignored in both.

    The CRPS is the mean over all windows. The coverage of areas is the mean over windows and labels with a mean
    fraction from .02 to .98 in the samples.
    """
    samples, known = np.where(truth < 0, -1, samples.astype(np.int64)), Truth.of(truth, n_labels)
    maps, coverage, ranks, score = known.inside(samples), {}, {}, {}
    for window in known.windows:
        values, true = known.areas(maps, window), known.areas(known.labels[None], window)[0]
        mean, name = values.mean(axis=0), name_of(window)
        uncertain = (mean > UNCERTAIN[0]) & (mean < UNCERTAIN[1])
        coverage[name], ranks[name] = (of(values, true, uncertain) for of in (covered, in_central_ranks))
        score[name] = float(crps(values, true).mean()) if true.size else float("nan")
    quantities: dict[str, Callable[[Array], Array]] = {
        COMPONENTS: partial(components, n_labels=n_labels, least=LEAST_COMPONENT),
        PERIMETER: known.perimeter,
    }
    for name, quantity in quantities.items():
        values, true = np.array([quantity(sample) for sample in samples]), quantity(truth)
        occurring = (values.max(axis=0) > 0) | (true > 0)
        coverage[name], ranks[name] = (of(values, true, occurring) for of in (covered, in_central_ranks))
        score[name] = float(crps(values, true)[occurring].mean()) if occurring.any() else float("nan")
    occur = np.mean([len(np.unique(one)) for one in maps])
    return MapScore(coverage, ranks, score, energy_score(maps, known.labels, n_labels), float(occur))


def covered(values: Array, true: Array, counted: Array) -> float:
    """Return the fraction of counted entries whose 90 % interval, from samples (M, ..), contains the true value.

    The bounds are quantiles at positions ``q · (M + 1)`` of the ordered samples. With M >= 19 samples from the
    distribution of the true value, they cover it with probability 0.9.
    """
    if not counted.any():
        return float("nan")
    values, true = values[:, counted], true[counted]
    low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0, method="weibull")
    return float(((low <= true) & (true <= high)).mean())


def in_central_ranks(values: Array, true: Array, counted: Array) -> float:
    """Return the expected fraction of true values in the central 90 % of ranks among samples (M, ..), ties at random.

    It is 0.9 for samples from the distribution of the true value, also if many values are equal. An interval that
    includes its bounds covers such values more often: the area of a small window is often 0 or 1 in most samples.

    >>> values = np.repeat([0.0, 1.0], [10, 29])[:, None]
    >>> [of(values, np.array([0.0]), np.array([True])) for of in (covered, in_central_ranks)]
    [1.0, 0.8181818181818182]
    """
    if not counted.any():
        return float("nan")
    values, true = values[:, counted], true[counted]
    begin, length = (values < true).sum(axis=0), (values == true).sum(axis=0) + 1
    low, high = (q * (len(values) + 1) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    inside = np.minimum(begin + length, high) - np.maximum(begin, low)
    return float((inside.clip(0) / length).mean())


def mean_scores(scores: Sequence[MapScore]) -> dict[str, Any]:
    """Return means over the images that have a value; quantities that no image has are left out."""

    def means(values: list[dict[str, float]]) -> dict[str, float]:
        names = dict.fromkeys(name for one in values for name in one)
        kept = {name: [v[name] for v in values if not np.isnan(v.get(name, np.nan))] for name in names}
        return {name: float(np.mean(some)) for name, some in kept.items() if some}

    return {
        "coverage": means([s.coverage for s in scores]),
        "ranks": means([s.ranks for s in scores]),
        "crps": means([s.crps for s in scores]),
        "energy": float(np.mean([s.energy for s in scores])),
        "labels per sample": float(np.mean([s.n_labels for s in scores])),
    }
