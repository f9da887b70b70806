"""Log-linear CRFs on raw intensities, which are learned in seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from locpmap import CRF, Potentials
from locpmap.features import ImageFeatures
from locpmap.learning import FitOptions, FitResult
from locpmap_paper.experiments.decoders import CRF_DECODERS, FEW_DECODERS, MAIN_DECODERS
from locpmap_paper.experiments.denoising import LABELS
from locpmap_paper.experiments.experiment import Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress

Array = npt.NDArray[Any]

ENDS = {"pairwise": ["constant", "ends"]}  # 1, x_i, x_j
DIFFERENCE = {"pairwise": ["constant", "difference"]}  # 1, |x_i - x_j|
CONSTANT = {"pairwise": ["constant"]}

MAX_ITERATIONS, MAX_ITERATIONS_FAST = 200, 1


class FittedCRF(Fitted):
    """A CRF with learned weights of intensities and edges."""

    def __init__(self, crf: CRF, details: dict[str, Any], seconds: float) -> None:
        self.crf, self.details, self.seconds = crf, details, seconds

    def potentials(self, inputs: Array) -> Potentials:
        return self.crf.potentials(inputs)

    def save(self, path: Path) -> None:
        self.crf.save(path)


@dataclass(frozen=True, kw_only=True)
class RawModel(Model):
    """A CRF with intensities as unary features, and a label table per pairwise feature and step."""

    features: str = "raw"

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        began = time.perf_counter()
        crf = CRF(len(LABELS), features=ImageFeatures(pairwise=tuple(self.settings["pairwise"])), label_names=LABELS)
        held_out = (case.held_out.inputs, case.held_out.truth)
        result = crf.fit(
            case.fit.inputs,
            case.fit.truth,
            self.learning,
            validation=held_out if self.learning == "consistent" else None,
            options=FitOptions(max_iterations=max_iterations(case), standard_errors=False),
            seed=case.seed_of("learning"),
            progress=lambda done, most, value: progress(done, most),
            backend="numba",
        )
        summary = result.summary()
        del summary["seconds"]
        return FittedCRF(crf, {**summary, "weights": named_weights(result)}, time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        return FittedCRF(CRF.load(path), {}, 0.0)


def max_iterations(case: Case) -> int:
    """Return the iteration limit of a fit; a smoke run stops early."""
    return MAX_ITERATIONS_FAST if case.experiment.fast else MAX_ITERATIONS


def named_weights(result: FitResult) -> dict[str, float]:
    """Return the weights by name, for the record."""
    return dict(zip(result.names, map(float, result.w), strict=True))


RAW_MODELS: tuple[Model, ...] = (
    RawModel(
        name="raw-pl",
        learning="pseudolikelihood",
        title="Raw, pseudolikelihood",
        says="The paper's model: unaries from the intensities, and for neighbours i and j a label table that is linear"
        " in (1, x_i, x_j).",
        settings=ENDS,
        decoders=CRF_DECODERS,
    ),
    RawModel(
        name="raw-pl-difference",
        learning="pseudolikelihood",
        title="Raw, pseudolikelihood, differences",
        says="As raw-pl, but with a label table linear in (1, |x_i - x_j|).",
        settings=DIFFERENCE,
        decoders=(*FEW_DECODERS, "locpmap-blocks-perturbed-conditional", "locpmap-tuned"),
    ),
    RawModel(
        name="raw-pl-constant",
        learning="pseudolikelihood",
        title="Raw, pseudolikelihood, constant",
        says="As raw-pl, but with one label table for horizontal and one for vertical edges.",
        settings=CONSTANT,
        decoders=(*FEW_DECODERS, "locpmap-tuned"),
    ),
    RawModel(
        name="raw-cl",
        learning="composite",
        title="Raw, composite likelihood",
        says="The paper's model (raw-pl), learned by the composite likelihood of rows and columns given the rest.",
        settings=ENDS,
        decoders=(*FEW_DECODERS, "locpmap-tuned"),
    ),
    RawModel(
        name="raw-consistent",
        learning="consistent",
        title="Raw, consistent",
        says="The paper's model (raw-pl), learned given the neighbours' labels sampled by LocPMAP, not the true ones.",
        settings=ENDS,
        decoders=(*MAIN_DECODERS, "locpmap-tuned"),
    ),
)
