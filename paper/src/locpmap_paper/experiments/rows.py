"""Decoding of the test images with one fitted model and one decoder, and the measures of the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap import Potentials, Result, metrics
from locpmap.errors import InputError, LocpmapError
from locpmap.inference import DECODERS, infer
from locpmap_paper.data.scenes import VOID
from locpmap_paper.experiments.decoders import SAMPLES, Listed
from locpmap_paper.experiments.experiment import Case, Part
from locpmap_paper.experiments.measures import measure
from locpmap_paper.experiments.model import Fitted, Progress
from locpmap_paper.experiments.normal import normal_form

Array = npt.NDArray[Any]
Decoded = tuple[Array, Array | None, float | None, float, str]  # labels, probability, score, seconds, status

NO_METRICS = dict.fromkeys(
    ("iou", "mean_iou", "image_iou", "accuracy", "score", "seconds", "ece", "brier", "nll", "aurc", "status")
)


@dataclass
class Subject:
    """A fitted model and the first test images of its case; potentials are computed once, on first use."""

    case: Case
    fitted: Callable[[], Fitted]
    most: int  # largest number of images of any decoder
    fast: bool
    device: str = "auto"
    _chosen: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _network: tuple[Array, float] | None = field(default=None, init=False)  # probabilities and seconds
    _pieces: dict[tuple[int, int], Potentials] = field(default_factory=dict, init=False)

    @cached_property
    def _normal(self) -> Potentials:
        return self._made(self.test(self.most).inputs)

    def _made(self, inputs: Array) -> Potentials:
        potentials = self.fitted().potentials(inputs)
        if potentials is None:
            raise InputError("this model is a network without a CRF, expected decoder argmax")
        return normal_form(potentials)

    def test(self, n_images: int) -> Part:
        """Return the first test images."""
        return self.case.test.first(n_images)

    def potentials(self, n_images: int) -> Potentials:
        """Return the potentials of the first test images in normal form."""
        return self._normal if n_images == self._normal.n_images else self._normal.part(slice(n_images))

    def pieces(self, n_images: int) -> Iterator[tuple[int, Potentials]]:
        """Yield the first test images in batches: the index of a batch's first image, and its potentials."""
        n_at_once = self.case.experiment.n_at_once
        if n_at_once is None:
            yield 0, self.potentials(n_images)
            return
        for lo in range(0, n_images, n_at_once):
            part = lo, min(lo + n_at_once, n_images)
            if part not in self._pieces:
                self._pieces[part] = self._made(self.case.test.inputs[slice(*part)])
            yield lo, self._pieces[part]

    def infer(self, potentials: Potentials, method: str, **options: Any) -> Result:
        """Decode on the run's device; decoders without GPU kernels run on the CPU."""
        device = self.device if self.device == "auto" or DECODERS[method].on_gpu else "cpu"
        return infer(potentials, method, device=device, **options)

    def decode(self, decoder: Listed, n_images: int, progress: Progress | None = None) -> Decoded:
        """Decode the first test images with one decoder."""
        if decoder.method == "argmax":
            return self._argmax(n_images)
        options, seed = self.options(decoder), self.case.seed_of("decoding")
        for _, potentials in self.pieces(1):
            self.infer(potentials, decoder.method, seed=seed, **options)  # compiles kernels before the timing
        parts = []
        for lo, potentials in self.pieces(n_images):
            inner = progress if lo == 0 and potentials.n_images == n_images else None
            parts.append(self.infer(potentials, decoder.method, seed=seed, first_image=lo, progress=inner, **options))
            if progress is not None:
                progress(lo + potentials.n_images, n_images)
        return _joined(parts)

    def options(self, decoder: Listed) -> dict[str, Any]:
        """Return a decoder's options; choices are made by mean IoU on held-out images."""
        listed = decoder.settings(self.fast)
        if not decoder.choices:
            return listed
        if decoder.name not in self._chosen:
            quick = listed | {"n_samples": min(SAMPLES, listed["n_samples"])}
            scores = [self._mean_iou(decoder.method, quick | choice) for choice in decoder.choices]
            self._chosen[decoder.name] = listed | decoder.choices[int(np.argmax(scores))]
        return self._chosen[decoder.name]

    @cached_property
    def _held_out(self) -> tuple[Potentials, Array]:
        part = self.case.tuning
        return self._made(part.inputs), part.truth

    def _mean_iou(self, method: str, options: dict[str, Any]) -> float:
        """Return the mean IoU on held-out images, or -1 if the decoder cannot decode the model."""
        potentials, truth = self._held_out
        try:
            labels = self.infer(potentials, method, seed=self.case.seed_of("tuning"), **options).labels
        except LocpmapError:
            return -1.0
        found = metrics.intersection_over_union(labels, truth, potentials.n_labels, ignore_label=VOID)
        return float(np.mean(found[np.unique(truth[truth != VOID])]))  # over labels that occur

    def _argmax(self, n_images: int) -> Decoded:
        if self._network is None or len(self._network[0]) < n_images:
            self.fitted().probability(self.test(1).inputs)  # loads and warms up before the timing
            began = time.perf_counter()
            probability = self.fitted().probability(self.test(n_images).inputs)
            if probability is None:
                raise InputError("this model has no network, expected another decoder than argmax")
            self._network = probability, time.perf_counter() - began
        probability, seconds = self._network[0][:n_images], self._network[1]
        labels = np.where(self.case.outside(self.test(n_images)), VOID, probability.argmax(axis=-1))
        return labels, probability, None, seconds, "exact"


def _joined(parts: list[Result]) -> Decoded:
    """Concatenate the results of batches."""
    labels, score = (np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "score"))
    some = [part.probability for part in parts if part.probability is not None]
    status = "; ".join(sorted({str(part.status) for part in parts}))
    seconds = sum(part.seconds for part in parts)
    return labels, np.concatenate(some) if some else None, float(np.mean(score)), seconds, status


def make_row(subject: Subject, decoder: Listed, n_images: int, progress: Progress) -> dict[str, Any]:
    """Return the row of the table, without names, and the curves; record an error of the decoder."""
    try:
        labels, probability, score, seconds, status = subject.decode(decoder, n_images, progress)
    except LocpmapError as refusal:
        row = {"n_images": n_images, **NO_METRICS, "refused": str(refusal)}
        return {"row": row, "calibration": None, "risk": None}
    found = measure(labels, probability, subject.test(n_images).truth, len(subject.case.experiment.labels))
    how: dict[str, Any] = {"score": score, "seconds": seconds, "status": status, "refused": None}
    if decoder.choices:
        how["chosen"] = {name: subject.options(decoder)[name] for name in decoder.choices[0]}
    row = {"n_images": n_images, **found.metrics, **how}
    return {"row": row, "calibration": found.calibration, "risk": found.risk}
