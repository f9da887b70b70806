"""The model and decoder pairs that figures show: LocPMAP at its best, the paper's setting, a model without a CRF."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from locpmap_paper.report import network_comparison, scene_comparison
from locpmap_paper.report.findings import OURS
from locpmap_paper.report.measures import MEAN_IOU
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.scene_tables import PAPER_MODEL

NETWORKS = (network_comparison.NETWORK, ("ce-fixed", "argmax"), ("deep-pl", "argmax"))  # in order of preference
PAPER_MODELS = ("deep-pl", "raw-pl", PAPER_MODEL)  # learned as in the paper, in order of preference
PAPER_DECODER = "locpmap"
MOST = 6  # curves in a figure


@dataclass(frozen=True)
class Shown:
    """A decoder on a model, with its part in a figure."""

    role: str
    model: Model
    decoder: Decoder

    @property
    def name(self) -> str:
        """The name in pictures and files."""
        return f"{self.model.name}/{self.decoder.name}"

    @property
    def words(self) -> str:
        """Decoder and model for a caption or a legend."""
        model = f"“{self.model.title}”"
        return model if self.decoder.family == "network" else f"{self.decoder.title} on {model}"


def best(record: Record, level: Level, among: Container[str] | None = None) -> Shown | None:
    """Return LocPMAP with the highest mean IoU on the test images, among the given names ``model/decoder``."""
    every = [
        Shown("LocPMAP at its best", model, decoder)
        for model in record.models
        for decoder in record.decoders
        if decoder.family == OURS
    ]
    return _best(record, level, every, among)


def of_paper(record: Record, level: Level, among: Container[str] | None = None) -> Shown | None:
    """Return the paper's algorithm on a model learned as in the paper, on deep features if these were run."""
    return _first(record, level, "The paper's setting", [(name, PAPER_DECODER) for name in PAPER_MODELS], among)


def alone(record: Record, level: Level, among: Container[str] | None = None) -> Shown | None:
    """Return the network, or the unaries of scenes, without pairwise terms."""
    if record.is_scenes:
        return _first(record, level, "Unaries alone", [scene_comparison.UNARIES], among)
    return _first(record, level, "Network alone", NETWORKS, among)


def curves(record: Record, level: Level, among: Container[str]) -> list[Shown]:
    """Return what the curves of a level compare: at most six pairs among the given names."""
    ours = [best(record, level, among), of_paper(record, level, among)]
    models = dict.fromkeys(each.model for each in ours if each is not None)
    rivals = [_rival(record, level, model, among) for model in models]
    scaled = _first(record, level, "Unaries, temperature scaled", [scene_comparison.SCALED], among)
    found = [each for each in (alone(record, level, among), scaled, *ours, *rivals) if each is not None]
    return list({each.name: each for each in found}.values())[:MOST]


def _rival(record: Record, level: Level, model: Model, among: Container[str]) -> Shown | None:
    """Return a model's best decoder other than LocPMAP and the network alone."""
    others = [d for d in record.decoders_of(level.name, model.name) if d.family not in (OURS, "network")]
    return _best(record, level, [Shown("The best other decoder", model, decoder) for decoder in others], among)


def _best(record: Record, level: Level, every: Sequence[Shown], among: Container[str] | None) -> Shown | None:
    """Return the pair with the highest mean IoU among those with enough images to be ranked."""
    values = []
    for each in every:
        value = record.estimate(level.name, each.model.name, each.decoder.name, MEAN_IOU.value)
        ranked = record.is_ranked(level.name, each.model.name, each.decoder.name)
        if value is not None and ranked and (among is None or each.name in among):
            values.append((value.mean, each))
    return max(values, key=lambda pair: pair[0], default=(0.0, None))[1]


def _first(
    record: Record, level: Level, role: str, pairs: Sequence[tuple[str, str]], among: Container[str] | None
) -> Shown | None:
    """Return the first pair that was run."""
    for model, decoder in pairs:
        there = among is None or f"{model}/{decoder}" in among
        if there and record.n_images(level.name, model, decoder):
            return Shown(role, record.model(model), record.decoder(decoder))
    return None
