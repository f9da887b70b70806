"""Comparison of LocPMAP on CRFs over scenes with the unaries alone."""

from __future__ import annotations

from dataclasses import dataclass

from locpmap_paper.report.findings import SURE, capitalised, in_sentence, judge, listed, standard_errors
from locpmap_paper.report.measures import AURC, MEAN_IOU, NLL, Measure, four_decimals, signed, signed_error
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.statistics import Estimate

UNARIES, SCALED = ("unaries", "argmax"), ("scaled", "argmax")  # models without pairwise terms
OPPONENTS = {UNARIES: "the unaries alone", SCALED: "the unaries after temperature scaling"}
COMPARED = (MEAN_IOU, NLL, AURC)
YES, UNCLEAR, NO = "yes", "no clear difference", "no"


@dataclass(frozen=True)
class Difference:
    """One measure of LocPMAP and its opponent, and the paired difference LocPMAP - opponent over seeds."""

    measure: Measure
    ours: Estimate
    theirs: Estimate
    change: Estimate

    @property
    def is_better(self) -> bool:
        """Whether LocPMAP's mean is better by a difference visible in four decimals."""
        return self.measure.better(self.change.mean, 0.0) and float(four_decimals(abs(self.change.mean))) > 0

    @property
    def answer(self) -> str:
        """Whether LocPMAP is better; unclear within two standard errors or if the difference prints as 0."""
        unsure = self.change.error is not None and not self.change.is_beyond(SURE)
        if unsure or float(four_decimals(abs(self.change.mean))) == 0:
            return UNCLEAR
        return YES if self.is_better else NO

    @property
    def numbers(self) -> str:
        """The numbers of both sides, their difference, and its standard errors."""
        ours, theirs = four_decimals(self.ours.mean), four_decimals(self.theirs.mean)
        text = f"{self.measure.title} {ours}, compared with {theirs} (difference: "
        if self.change.error is None:
            return f"{text}{signed(self.change.mean)} on one seed)"
        sure = "the same on all seeds" if self.change.errors is None else standard_errors(self.change.errors)
        return f"{text}{signed_error(self.change)}, {sure})"


@dataclass(frozen=True)
class UnaryComparison:
    """One form of LocPMAP on one model compared with unaries alone, in the measures that both have."""

    level: Level
    model: Model
    form: Decoder
    opponent: str
    differences: tuple[Difference, ...]

    @property
    def answer(self) -> str:
        """The answers grouped: yes in some measures, no in others."""
        parts = []
        for answer in (YES, UNCLEAR, NO):
            titles = [each.measure.title for each in self.differences if each.answer == answer]
            if titles:
                parts.append(f"{answer} in {listed(titles)}")
        return ", ".join(parts)

    def difference(self, measure: Measure) -> Difference | None:
        """Return the difference in one measure, or None."""
        return next((each for each in self.differences if each.measure == measure), None)


def compare_with_unaries(record: Record, level: Level) -> list[UnaryComparison]:
    """Compare every model's LocPMAP with the unaries of its level, if both were run on the same images.

    One form of LocPMAP is used for all measures: the tuned one if it was run, else the best in mean IoU.
    """
    found = []
    for model in record.models:
        verdict = judge(record, level, model)
        if verdict is None:
            continue
        ours = model.name, verdict.best.decoder.name
        for theirs, opponent in OPPONENTS.items():
            if record.n_images(level.name, *ours) == record.n_images(level.name, *theirs):
                differences = tuple(_differences(record, level, ours, theirs))
                found.append(UnaryComparison(level, model, verdict.best.decoder, opponent, differences))
    return [comparison for comparison in found if comparison.differences]


def _differences(record: Record, level: Level, ours: tuple[str, str], theirs: tuple[str, str]) -> list[Difference]:
    found = []
    for measure in COMPARED:
        change = record.difference(level.name, ours, theirs, measure.value)
        left, right = (record.estimate(level.name, *each, measure.value) for each in (ours, theirs))
        if change is not None and left is not None and right is not None:
            found.append(Difference(measure, left, right, change))
    return found


def in_words(record: Record, level: Level) -> list[tuple[str, str]]:
    """Return a sentence per opponent on whether the best CRF of a level beats the unaries.

    The best CRF is the model whose LocPMAP has the highest mean IoU on the test images; the tables show all models.
    """
    found = compare_with_unaries(record, level)
    scores = {comparison.model.name: _mean_iou(record, comparison) for comparison in found}
    if not scores:
        return []
    best = max(scores, key=lambda name: scores[name])
    return [
        (
            capitalised(f"{record.place(level)}, compared with {comparison.opponent}"),
            f"{comparison.answer}. {in_sentence(comparison.form)} on the model “{comparison.model.title}” has "
            f"{'; '.join(each.numbers for each in comparison.differences)}.",
        )
        for comparison in found
        if comparison.model.name == best
    ]


def _mean_iou(record: Record, comparison: UnaryComparison) -> float:
    value = record.estimate(comparison.level.name, comparison.model.name, comparison.form.name, MEAN_IOU.value)
    return float("-inf") if value is None else value.mean
