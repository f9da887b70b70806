"""The decision with the best expected mean overlap, from the probabilities of single sites."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.deciding.measures import Measure, Overlap, mean_overlap
from locpmap.deciding.statistics import Masses, affine_argmax, columns

MAX_ROUNDS = 12
STABLE = 1e-4  # fraction of sites whose change ends the rounds
TOP = 0.2  # a label with a larger probability somewhere may be decided
SLACK = 0.05  # labels whose value is this close to the limit are also tried without
LEAST_GAIN = 1e-3  # expected gain over the argmax below which the argmax is the decision


class Rule(NamedTuple):
    """The decision argmax_k slope[k] · p[k] + offset[k], with the expected value of the measure."""

    slope: Array  # (L,)
    offset: Array  # (L,), -inf for labels that are never decided
    expected: float

    def without(self, out: Array) -> "Rule":
        """Return the rule that never decides the labels ``out`` (L,) of booleans; its value is unknown."""
        return Rule(np.where(out, 0.0, self.slope), np.where(out, -np.inf, self.offset), np.nan)


class Round(NamedTuple):
    """A rule, and the statistics of its decision."""

    rule: Rule
    counts: Array
    inside: Array
    overlap: Overlap

    def among(self, may: Array) -> "Round":
        """Return the round for the labels ``may`` (L,) of booleans, which include all decided ones."""
        slope, offset, expected = self.rule
        overlap = Overlap(*(each[may] for each in self.overlap))
        return Round(Rule(slope[may], offset[may], expected), self.counts[may], self.inside[may], overlap)


def argmax_of(n_labels: int) -> Rule:
    """Return the rule that decides the most probable label."""
    return Rule(np.ones(n_labels), np.zeros(n_labels), np.nan)


def solve(measure: Measure, rows: Any, masses: Masses) -> Rule:
    """Return the rule with the best expected mean overlap over the sites, rows (S, L) of probabilities.

    The rule starts from the argmax.  Each round decides by the gains of the last decision; the best round is kept.
    Then labels are left out if that raises the expected mean: a label that is decided but does not occur lowers it.
    The result is the argmax unless the expected gain is at least 0.001.

    Cost: about ten passes over the probabilities of the labels that may be decided.
    """
    n_labels = len(masses.totals)
    first = Search(measure, rows, masses.totals, masses.presence, 0.0).at(argmax_of(n_labels))
    if not len(rows):
        return first.rule
    may = (first.counts > 0) | (masses.largest > TOP)
    others = float(masses.presence[~may].sum())
    search = Search(measure, columns(rows, may), masses.totals[may], masses.presence[may], others)
    best = search.rounds(first.among(may))
    while (fewer := search.fewer(best)) is not None and fewer.rule.expected > best.rule.expected:
        best = fewer
    if best.rule.expected < first.rule.expected + LEAST_GAIN:
        return first.rule
    slope, offset = np.zeros(n_labels), np.full(n_labels, -np.inf)
    slope[may], offset[may] = best.rule.slope, best.rule.offset
    return Rule(slope, offset, best.rule.expected)


@dataclass(frozen=True, eq=False)
class Search:
    """Rules and their expected values for the sites ``rows``; all arrays are of the labels that may be decided."""

    measure: Measure
    rows: Any  # (S, L)
    totals: Array  # (L,)
    presence: Array  # (L,)
    others: float  # summed presence of all other labels

    def at(self, rule: Rule) -> Round:
        """Return the statistics and the expected value of a rule."""
        _, counts, inside = affine_argmax(self.rows, rule.slope, rule.offset)
        overlap = self.measure(counts, inside, self.totals, self.presence)
        everywhere = np.append(self.presence, self.others)
        value = mean_overlap(np.append(overlap.value, 0), np.append(counts, 0), everywhere)
        return Round(rule._replace(expected=value), counts, inside, overlap)

    def rounds(self, start: Round) -> Round:
        """Return the best of at most 12 rounds.

        Each decides by the gains of the mean of the last decision and those before it, so that rounds do not oscillate.
        """
        best = now = start
        counts, inside, scale = start.counts, start.inside, len(self.rows)
        for _ in range(MAX_ROUNDS):
            out = np.isneginf(now.rule.offset)
            _, slope, offset = self.measure(counts, inside, self.totals, self.presence)
            gains = Rule(scale * slope, scale * offset, np.nan)  # of the size of probabilities
            last, now = now, self.at(gains.without(out))
            best = max(best, now, key=lambda one: one.rule.expected)
            if np.abs(now.counts - last.counts).sum() <= STABLE * scale:
                break
            counts, inside = (counts + now.counts) / 2, (inside + now.inside) / 2
        return best

    def fewer(self, best: Round) -> Round | None:
        """Return the best rule without labels that lower the expected mean, or None if there are none.

        Without label k the mean V rises if its overlap is below V (1 - π_k).
        """
        decided = best.counts > 0
        excess = best.overlap.value - best.rule.expected * (1 - self.presence)
        excess = np.where(decided, excess, np.inf)
        out = decided & (excess <= max(0.0, excess.min())) & (excess < SLACK)
        if not out.any() or out.sum() == decided.sum():
            return None
        return self.rounds(self.at(best.rule.without(out | ~decided)))
