"""Comparison of LocPMAP on deep models with a network trained without a CRF."""

from __future__ import annotations

from dataclasses import dataclass

from locpmap_paper.report.findings import SURE, in_sentence, standard_errors
from locpmap_paper.report.measures import MEAN_IOU, NLL, THIN, Measure, four_decimals, signed
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.statistics import Estimate

NETWORK = ("ce-fresh", "argmax")  # cross-entropy on newly drawn noise, without pairwise terms
JOINT = "deep-consistent"  # network and CRF learned jointly; prefix of its variants' names
FORM = "locpmap-conditional"  # the form that consistent learning fits, not the best on the test images


@dataclass(frozen=True)
class NetworkComparison:
    """One form of LocPMAP on one model compared with the network: paired differences, LocPMAP - network."""

    level: Level
    model: Model
    form: Decoder
    iou: Estimate | None
    nll: Estimate | None


def compare_with_network(record: Record) -> list[NetworkComparison]:
    """Return the comparison of every deep model's LocPMAP with the network, if both were run on the same images."""
    found = []
    for model in record.models:
        for level in record.levels:
            if model.features == "deep" and _comparable(record, level, model):
                ours = (model.name, FORM)
                iou, nll = (record.difference(level.name, ours, NETWORK, m.value) for m in (MEAN_IOU, NLL))
                found.append(NetworkComparison(level, model, record.decoder(FORM), iou, nll))
    return found


def _comparable(record: Record, level: Level, model: Model) -> bool:
    if all(decoder.name != FORM for decoder in record.decoders_of(level.name, model.name)):
        return False
    return record.n_images(level.name, model.name, FORM) == record.n_images(level.name, *NETWORK)


def joint_in_words(record: Record) -> list[tuple[str, str]]:
    """Return a sentence per level on whether jointly learned LocPMAP beats the network."""
    return [
        (f"{comparison.model.title}, {comparison.level.name} level", _in_words(comparison, record))
        for comparison in compare_with_network(record)
        if comparison.model.name.startswith(JOINT)
    ]


def _in_words(comparison: NetworkComparison, record: Record) -> str:
    if comparison.iou is None or comparison.nll is None:
        return f"{in_sentence(comparison.form)} and the network have no common seed, so they cannot be compared."
    higher, lower = comparison.iou.mean > 0, comparison.nll.mean < 0
    sure = all(each.is_beyond(SURE) for each in (comparison.iou, comparison.nll))
    if higher and lower:
        answer = "yes, in both" if sure else f"yes, in both, {_doubt(comparison)}"
    elif higher or lower:
        answer = f"only in {'mean IoU, not in NLL' if higher else 'NLL, not in mean IoU'}"
    else:
        answer = "no, in neither"
    iou = _against(comparison, record, MEAN_IOU, comparison.iou)
    nll = _against(comparison, record, NLL, comparison.nll)
    return f"{answer}. {in_sentence(comparison.form)} has a mean IoU of {iou} and a negative log-likelihood of {nll}."


def _doubt(comparison: NetworkComparison) -> str:
    if comparison.iou is not None and comparison.iou.error is None:
        return "but on one seed only, without standard errors"
    return "but not in both by more than two standard errors"


def _against(comparison: NetworkComparison, record: Record, measure: Measure, change: Estimate) -> str:
    """Return our value, the network's, and the paired difference."""
    ours = record.estimate(comparison.level.name, comparison.model.name, comparison.form.name, measure.value)
    theirs = record.estimate(comparison.level.name, *NETWORK, measure.value)
    assert ours is not None  # a difference exists only if both exist
    assert theirs is not None
    text = f"{four_decimals(ours.mean)} (network: {four_decimals(theirs.mean)}, difference: {signed(change.mean)}"
    if change.error is None:
        return f"{text} on one seed)"
    counted = "" if change.errors is None else f", {standard_errors(change.errors)}"
    return f"{text}{THIN}±{THIN}{four_decimals(change.error)}{counted})"
