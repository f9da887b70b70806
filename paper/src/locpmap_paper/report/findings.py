"""Rankings of decoders by a measure, and sentences that report them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from locpmap_paper.report.measures import MEAN_IOU, Measure, four_decimals, plus_minus
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.statistics import Estimate

OURS = "locpmap"  # the family of LocPMAP's forms
TUNED = "locpmap-tuned"  # prefix of the names of tuned forms
SURE = 2.0  # standard errors from which a difference counts as clear
MANY = 100.0
PAPER_MODELS = {"raw": "raw-pl", "deep": "deep-pl"}  # the paper's kinds of features, and our models for them


@dataclass(frozen=True)
class Contender:
    """A decoder with its mean over seeds and its number of images."""

    decoder: Decoder
    value: Estimate
    n_images: int


@dataclass(frozen=True)
class Verdict:
    """The ranking of one model's decoders at one level by one measure.

    Attributes:
        level, model: The cell that is ranked.
        place: Name of model and level for a sentence.
        best: The form of LocPMAP that is compared.
        rival: The best other decoder, or None.
        lead: Paired difference best - rival, positive if LocPMAP is better.
        ahead: Other decoders that beat LocPMAP, the best first.
        partial: Other decoders that would beat LocPMAP but have too few images to be ranked.
    """

    level: Level
    model: Model
    place: str
    best: Contender
    rival: Contender | None
    lead: Estimate | None
    ahead: tuple[Contender, ...]
    partial: tuple[Contender, ...]

    @property
    def is_first(self) -> bool:
        """Whether no other decoder beats LocPMAP."""
        return not self.ahead


def verdicts(record: Record, measure: Measure = MEAN_IOU) -> list[Verdict]:
    """Return one ranking per level and model that LocPMAP was run on."""
    found = (judge(record, level, model, measure) for model in record.models for level in record.levels)
    return [verdict for verdict in found if verdict is not None]


def judge(record: Record, level: Level, model: Model, measure: Measure = MEAN_IOU) -> Verdict | None:
    """Rank the decoders of one cell; return None if LocPMAP does not have this measure there."""
    ranked = sorted(
        _contenders(record, level, model, measure),
        key=lambda each: -each.value.mean if measure.larger_is_better else each.value.mean,
    )
    whole = [each for each in ranked if record.is_ranked(level.name, model.name, each.decoder.name)]
    ours = [each for each in whole if _is_ours(each.decoder)]
    if not ours:
        return None
    # Prefer the form selected on held-out images: the test images should not select a form.
    tuned = [each for each in ours if is_tuned(each.decoder)]
    best = min(tuned or ours[:1], key=lambda each: record.decoders.index(each.decoder))
    others = [each for each in whole if not _is_ours(each.decoder)]
    partial = [each for each in ranked if each not in whole and not _is_ours(each.decoder)]
    rival = others[0] if others else None
    lead = None
    if rival is not None:
        left, right = (model.name, best.decoder.name), (model.name, rival.decoder.name)
        lead = record.difference(level.name, left, right, measure.value)
        if lead is not None and not measure.larger_is_better:
            lead = Estimate(-lead.mean, lead.error, lead.n)

    def beats(each: Contender) -> bool:
        tied = measure.show(each.value.mean) == measure.show(best.value.mean)  # identical when printed: a tie
        return measure.better(each.value.mean, best.value.mean) and not tied

    place = f"{model.title}, {record.place(level)}"
    ahead, unsure = tuple(filter(beats, others)), tuple(filter(beats, partial))
    return Verdict(level, model, place, best, rival, lead, ahead, unsure)


def _contenders(record: Record, level: Level, model: Model, measure: Measure) -> Iterator[Contender]:
    for decoder in record.decoders_of(level.name, model.name):
        value = record.estimate(level.name, model.name, decoder.name, measure.value)
        if value is not None:
            yield Contender(decoder, value, record.n_images(level.name, model.name, decoder.name))


def in_sentence(decoder: Decoder) -> str:
    """Return the title for use in a sentence: text after a comma goes into brackets."""
    head, _, rest = decoder.title.partition(", ")
    return f"{head} ({rest})" if rest else head


def capitalised(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def listed(names: Sequence[str], last: str = "and") -> str:
    """Join names with commas and a final conjunction.

    >>> listed(["ICM", "LBP", "Gibbs"]), listed(["ICM", "LBP"], "or"), listed(["ICM"])
    ('ICM, LBP and Gibbs', 'ICM or LBP', 'ICM')
    """
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)


def is_tuned(decoder: Decoder) -> bool:
    """Return whether this form of LocPMAP was selected on held-out images."""
    return decoder.name.startswith(TUNED)


def firsts(found: list[Verdict]) -> list[tuple[str, str]]:
    """Return a sentence on the best decoder for every model and level."""
    return [(verdict.place, _in_words(verdict)) for verdict in found]


def _in_words(verdict: Verdict) -> str:
    best, rival = verdict.best, verdict.rival
    if rival is None:
        return f"{in_sentence(best.decoder)} reaches {plus_minus(best.value)}; no other decoder was run."
    if _level(verdict):
        names = f"{in_sentence(best.decoder)} and {in_sentence(rival.decoder)}"
        return f"{names} tie at {four_decimals(best.value.mean)} ({distance(verdict.lead)}{_images(best, rival)})."
    first, second = (best, rival) if verdict.is_first else (rival, best)
    verb = "follows with" if verdict.is_first else "has"  # others may lie between the first and LocPMAP
    return (
        f"{in_sentence(first.decoder)} is first with {plus_minus(first.value)}; {in_sentence(second.decoder)} {verb} "
        f"{four_decimals(second.value.mean)} ({distance(verdict.lead)}{_against(verdict)}{_images(first, second)})."
    )


def _level(verdict: Verdict) -> bool:
    """Return whether LocPMAP and the best other decoder print identical means."""
    rival = verdict.rival
    return rival is not None and four_decimals(verdict.best.value.mean) == four_decimals(rival.value.mean)


def _against(verdict: Verdict) -> str:
    """Return a warning if the paired difference contradicts the order of the means."""
    if verdict.lead is None or verdict.lead.mean == 0 or (verdict.lead.mean > 0) == verdict.is_first:
        return ""
    return ", but in the opposite order on the seeds that both have"


def _images(left: Contender, right: Contender) -> str:
    """Return a warning if two decoders were run on different numbers of images."""
    if left.n_images == right.n_images:
        return ""
    return f"; on the first {left.n_images:,} and {right.n_images:,} images"


def unranked(found: list[Verdict]) -> list[tuple[str, str]]:
    """Return a sentence on each decoder that beats LocPMAP but has too few images to be ranked."""
    items: dict[str, list[str]] = {}
    for verdict in found:
        for each in verdict.partial:
            numbers = f"{four_decimals(each.value.mean)} on {each.n_images:,} images"
            items.setdefault(verdict.place, []).append(
                f"{in_sentence(each.decoder)} has {numbers}, LocPMAP {four_decimals(verdict.best.value.mean)} on "
                f"{verdict.best.n_images:,}"
            )
    return [(place, f"{'; '.join(cells)}.") for place, cells in items.items()]


def distance(lead: Estimate | None) -> str:
    """Return the size of a difference with its number of standard errors."""
    if lead is None:
        return "no common seed"
    gap = four_decimals(abs(lead.mean))
    size = f"a gap of {gap}" if float(gap) else "a gap of less than .0001"
    if lead.n == 1:
        return f"{size} on one seed"
    if lead.errors is None:
        return f"{size}, the same on all {lead.n} seeds"
    return f"{size}, {standard_errors(lead.errors)}{'' if abs(lead.errors) >= SURE else ': no clear difference'}"


def standard_errors(count: float) -> str:
    """Format a number of standard errors; few seeds do not support more digits."""
    size = abs(count)
    if size > MANY:
        return f"more than {MANY:.0f} standard errors"
    return f"{size:.0f} standard errors" if size >= 10 else f"{size:.1f} standard errors"


def summary(found: list[Verdict]) -> str:
    """Return a sentence on how often LocPMAP is first."""
    if not found:
        return "LocPMAP was not run, so there is nothing to rank."
    firsts = [verdict for verdict in found if verdict.is_first]
    sure = [v for v in firsts if v.lead is not None and v.lead.mean > 0 and v.lead.is_beyond(SURE)]
    text = f"Of the {len(found)} combinations of a learned model and a noise level, LocPMAP is first in "
    text += f"mean IoU in {'all' if len(firsts) == len(found) else len(firsts)}"
    if level := sum(map(_level, firsts)):
        text += f" ({level} of them tied with another decoder in the digits shown)"
    if firsts and any(v.lead is not None and v.lead.n > 1 for v in firsts):
        text += f", in {len(sure)} of them by more than two standard errors"
    unequal = [v for v in found if v.rival is not None and v.rival.n_images != v.best.n_images]
    if unequal:
        text += (
            f". In {len(unequal)} of the {len(found)} combinations, the two compared decoders were run on different"
            " numbers of images (given below); the standard errors are over seeds and do not account for that"
        )
    return f"{text}."


def defeats(found: list[Verdict], measure: Measure) -> list[tuple[str, str]]:
    """Return a sentence for every cell where another decoder beats LocPMAP."""
    return [(verdict.place, _defeat(verdict, measure)) for verdict in found if not verdict.is_first]


def _defeat(verdict: Verdict, measure: Measure) -> str:
    names = [f"{in_sentence(each.decoder)} with {four_decimals(each.value.mean)}" for each in verdict.ahead]
    verb, gap_to = ("beats", "") if len(names) == 1 else ("beat", "to the best, ")
    best = verdict.best
    return (
        f"{listed(names)} {verb} {in_sentence(best.decoder)} with {four_decimals(best.value.mean)} in "
        f"{measure.title} ({gap_to}{distance(verdict.lead)}{_images(best, verdict.ahead[0])})."
    )


def compared_with_paper(record: Record) -> list[tuple[str, str]]:
    """Return LocPMAP's mean IoU in the paper and here, per level and features."""
    paper = record.protocol.paper
    found = {(verdict.level.name, verdict.model.name): verdict for verdict in verdicts(record)}
    items = []
    for level in record.levels:
        for features, model in PAPER_MODELS.items():
            theirs = {} if paper is None else paper.raw if features == "raw" else paper.deep
            plain = next(
                (decoder for decoder in record.decoders if decoder.paper in theirs and _is_ours(decoder)), None
            )
            verdict = found.get((level.name, model))
            if plain is None or verdict is None:
                continue
            before = theirs[str(plain.paper)][-1]
            text = f"LocPMAP has .{round(before * 1000):03d} in the paper"
            if (value := record.estimate(level.name, model, plain.name, MEAN_IOU.value)) is not None:
                text += f", {plus_minus(value)} here in the same form"
            if verdict.best.decoder != plain:
                text += f", {plus_minus(verdict.best.value)} here as {in_sentence(verdict.best.decoder)}"
            items.append((f"{features} features, {level.name} level".capitalize(), f"{text}."))
    return items


def _is_ours(decoder: Decoder) -> bool:
    return decoder.family == OURS
