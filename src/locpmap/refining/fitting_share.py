"""Learning of the share of similar pixels in the scores, which is 0 unless they help."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.refining.adapting import Rule, adapted, lattice
from locpmap.refining.examples import VOID, Example
from locpmap.refining.guiding import guided_log_mean_at
from locpmap.refining.scoring import Score, score, softmax

SHARES = (0.35, 0.55, 0.75)
REMOVED = (0.0, 0.03, 0.06, 0.1)
THRESHOLD = 0.75  # that of the bundled refiner, found on seven data sets by benchmarks.arena
N_STANDARD_ERRORS = 1.0  # by which similar pixels have to lower the negative log-likelihood


class Setting(NamedTuple):
    """The share of similar pixels where they agree with the network, and the rule of adaptation."""

    share: float
    rule: Rule


def candidates(thresholds: Iterable[float]) -> list[Setting]:
    """Return all settings with one of the thresholds."""
    return [Setting(share, Rule(*rule)) for share, *rule in itertools.product(SHARES, thresholds, REMOVED)]


class Points(NamedTuple):
    """Scores, guided log means and labels of the lattice of one image."""

    scores: Array  # (P, K)
    guided: Array
    labels: Array  # (P,)

    @classmethod
    def of(cls, example: Example, scale: float) -> Points:
        """Return the points of an example whose scores are multiplied by a scale."""
        places, scores = lattice(*example.labels.shape), np.float32(scale) * example.scores
        guided = guided_log_mean_at(scores, Restore()(example.given.image)[0], places)
        return cls(scores.reshape(-1, scores.shape[-1])[places], guided, example.labels.ravel()[places])

    def scored(self, setting: Setting | None) -> Score:
        """Score the adapted probabilities of a setting, or with None those of the network."""
        if setting is None:
            return score(softmax(self.scores), self.labels)
        own, guided = 1 - setting.share, setting.share
        found = adapted([(self.scores, self.guided)], own, guided, setting.rule)
        part, factor = (float(one[0]) for one in found)
        joined = factor * ((1 + part * (own - 1)) * self.scores + part * guided * self.guided)
        return score(softmax(joined.astype(np.float32)), self.labels)


def fit_share(points: Sequence[Points], threshold: float = THRESHOLD) -> Setting:
    """Return the most likely setting, or a share of 0 if it does not help by a standard error over images.

    Images without labels on the lattice do not count. If there are no others, the share is 0.
    """
    points = [one for one in points if (one.labels != VOID).any()]
    if not points:
        return Setting(0.0, Rule(threshold, 0.0))
    alone = _losses([one.scored(None) for one in points])
    losses = {setting: _losses([one.scored(setting) for one in points]) for setting in candidates([threshold])}
    best = min(losses, key=lambda setting: float(losses[setting].mean()))
    gains = alone - losses[best]
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return best if gains.mean() > N_STANDARD_ERRORS * error else Setting(0.0, best.rule)


def _losses(scores: Sequence[Score]) -> Array:
    """Return the negative log-likelihood of each image."""
    return np.array([one.nll for one in scores])
