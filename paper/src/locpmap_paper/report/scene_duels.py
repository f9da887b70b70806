"""LocPMAP on random fields over scenes against the unaries by themselves: are neighbours worth having?"""

from __future__ import annotations

from dataclasses import dataclass

from locpmap_paper.report.findings import SURE, capital, judge, listed, spoken, standard_errors
from locpmap_paper.report.measures import AURC, MEAN_IOU, NLL, Measure, share, signed, signed_error
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.statistics import Estimate

UNARIES, SCALED = ("unaries", "argmax"), ("scaled", "argmax")  # models without neighbours
OPPONENTS = {UNARIES: "the unaries alone", SCALED: "the unaries after temperature scaling"}
COMPARED = (MEAN_IOU, NLL, AURC)
YES, UNCLEAR, NO = "yes", "no clear difference", "no"


@dataclass(frozen=True)
class Difference:
    """One measure of both sides, and the paired difference LocPMAP - opponent over seeds."""

    measure: Measure
    ours: Estimate
    theirs: Estimate
    change: Estimate

    @property
    def is_better(self) -> bool:
        """Whether LocPMAP's mean is better, by what four digits show."""
        return self.measure.better(self.change.mean, 0.0) and float(share(abs(self.change.mean))) > 0

    @property
    def answer(self) -> str:
        """Whether LocPMAP is better: what is within two standard errors or prints as nothing is neither yes nor no."""
        unsure = self.change.error is not None and not self.change.is_beyond(SURE)
        if unsure or float(share(abs(self.change.mean))) == 0:
            return UNCLEAR
        return YES if self.is_better else NO

    @property
    def numbers(self) -> str:
        """Both sides, their difference, and how sure it is."""
        text = f"{self.measure.title} {share(self.ours.mean)} against {share(self.theirs.mean)} ("
        if self.change.error is None:
            return f"{text}{signed(self.change.mean)} on one seed)"
        sure = "the same on all seeds" if self.change.errors is None else standard_errors(self.change.errors)
        return f"{text}{signed_error(self.change)}, {sure})"


@dataclass(frozen=True)
class SceneDuel:
    """One form of LocPMAP on one model against unaries by themselves; differences only where both have the measure."""

    level: Level
    model: Model
    form: Decoder
    opponent: str
    differences: tuple[Difference, ...]

    @property
    def answer(self) -> str:
        """Yes in some measures, no in others."""
        parts = []
        for answer in (YES, UNCLEAR, NO):
            titles = [each.measure.title for each in self.differences if each.answer == answer]
            if titles:
                parts.append(f"{answer} in {listed(titles)}")
        return ", ".join(parts)

    def difference(self, measure: Measure) -> Difference | None:
        """That of one measure."""
        return next((each for each in self.differences if each.measure == measure), None)


def scene_duels(record: Record, level: Level) -> list[SceneDuel]:
    """Every model's LocPMAP against the unaries of its level, where both were given the same images.

    LocPMAP stands in one form for all measures: tuned where there is that form, else its best in mean IoU.
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
                found.append(SceneDuel(level, model, verdict.best.decoder, opponent, differences))
    return [duel for duel in found if duel.differences]


def _differences(record: Record, level: Level, ours: tuple[str, str], theirs: tuple[str, str]) -> list[Difference]:
    found = []
    for measure in COMPARED:
        change = record.difference(level.name, ours, theirs, measure.value)
        left, right = (record.estimate(level.name, *each, measure.value) for each in (ours, theirs))
        if change is not None and left is not None and right is not None:
            found.append(Difference(measure, left, right, change))
    return found


def in_words(record: Record, level: Level) -> list[tuple[str, str]]:
    """Whether the best random field of a level beats the unaries: a sentence per opponent.

    The best is the model whose LocPMAP has the highest mean IoU on the test images; the tables show all.
    """
    found = scene_duels(record, level)
    scores = {duel.model.name: _mean_iou(record, duel) for duel in found}
    if not scores:
        return []
    best = max(scores, key=lambda name: scores[name])
    return [
        (
            capital(f"{record.place(level)} against {duel.opponent}"),
            f"{duel.answer}. {spoken(duel.form)} on the model “{duel.model.title}” has "
            f"{', '.join(each.numbers for each in duel.differences)}.",
        )
        for duel in found
        if duel.model.name == best
    ]


def _mean_iou(record: Record, duel: SceneDuel) -> float:
    value = record.estimate(duel.level.name, duel.model.name, duel.form.name, MEAN_IOU.value)
    return float("-inf") if value is None else value.mean
