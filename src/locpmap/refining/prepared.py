"""A refiner's model of one image, which can be refined and measured repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from locpmap.arrays import namespace
from locpmap.graphs import Grid
from locpmap.inference import ErrorFields, LocPMAP, infer
from locpmap.inference.decoder import Decoder
from locpmap.measuring import Measurement, measure
from locpmap.potentials import Potentials
from locpmap.refining.model import AS_LEARNED, compose
from locpmap.refining.presence import predicted_fractions, presence_of
from locpmap.refining.reading import Given
from locpmap.refining.scoring import softmax
from locpmap.refining.weights import CELL, Adjustment, Errors, Weights
from locpmap.result import Result

REFINING = LocPMAP(start="perturbed")
MEASURING = LocPMAP(n_samples=200, start="perturbed")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A refiner's model of an image or a batch, returned by :meth:`locpmap.Refiner.prepare`.

    Attributes:
        potentials (Potentials): The Potts model, for any decoder of :func:`locpmap.infer`.
        errors (Errors): The learned parameters of samples at the stride of the logits.
    """

    potentials: Potentials
    errors: Errors

    @classmethod
    def of(
        cls,
        given: Given,
        weights: Weights,
        adjustment: Adjustment = AS_LEARNED,
        *,
        mask: Any = None,
        stride: float | None = None,
    ) -> Prepared:
        """Build the model with :func:`locpmap.refining.model.compose`."""
        potentials = compose(given, weights, adjustment, mask=mask, stride=stride)
        errors = weights.errors_at(given.stride if stride is None else stride)
        sizes = tuple(size / adjustment.temperature for size in errors.sizes)
        return cls(potentials, errors._replace(sizes=sizes, shared=errors.shared / adjustment.temperature))

    def refine(
        self,
        decoder: str | Decoder | None = None,
        *,
        seed: int = 0,
        device: str = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> Result:
        """Decode the model. The arguments and the result are those of :func:`locpmap.refine`."""
        chosen = REFINING if decoder is None else decoder
        if isinstance(chosen, LocPMAP) and any(self.errors.sizes):
            chosen = replace(self.sampler(chosen), probability="votes")
            return self._averaged(infer(self.potentials, chosen, seed=seed, device=device, progress=progress))
        if isinstance(chosen, LocPMAP) and self._same_for_all_samples(chosen):
            chosen = replace(chosen, n_samples=1, temperature=0.0)
        return infer(self.potentials, chosen, seed=seed, device=device, progress=progress)

    def _same_for_all_samples(self, decoder: LocPMAP) -> bool:
        """Return whether one sample gives the same result as many: no coupling, and only conditional probabilities."""
        conditional = decoder.probability == "conditional" and not decoder.keep_samples and decoder.fields is None
        return conditional and not self.potentials.pairwise.coupled

    def sampler(self, decoder: LocPMAP) -> LocPMAP:
        """Return the decoder with the learned error fields and noise, unless it has fields of its own."""
        if decoder.fields is not None:
            return decoder
        return replace(decoder, fields=self.fields, temperature=decoder.temperature * self.errors.noise)

    def _averaged(self, result: Result) -> Result:
        """Return the result with the mean of the samples' fractions and of the softmax of the unaries.

        The samples are label maps without calibrated marginals; the softmax of the unaries is calibrated.
        """
        marginals = self.potentials.restore(self.potentials.unflatten(softmax(self.potentials.unary)))
        where, masked = namespace(marginals).where, result.labels < 0
        marginals = where(masked[..., None], 0, marginals)
        probability = (result.probability + marginals) / 2
        return replace(result, probability=probability, labels=where(masked, -1, probability.argmax(-1)))

    @cached_property
    def fields(self) -> ErrorFields:
        """The learned error fields; a scale whose cells exceed the image becomes part of the shared error."""
        structure = self.potentials.structure
        assert isinstance(structure, Grid)
        side = max(structure.shape)
        n_scales = sum(CELL << j <= side for j in range(len(self.errors.sizes)))
        sizes, coarse = self.errors.sizes[:n_scales], self.errors.sizes[n_scales:]
        shared = float(np.sqrt(self.errors.shared**2 + np.square(coarse).sum()))
        return ErrorFields(sizes if any(sizes) else (), CELL, shared, self.presence)

    @cached_property
    def presence(self) -> Any:
        """Probability (N, L) that each label occurs in the image, as in :class:`locpmap.ErrorFields`.

        None means that all are 1: if ``half`` is 0, or if a score is -inf.
        """
        fractions = predicted_fractions(self.potentials) if self.errors.half > 0 else None
        return None if fractions is None else presence_of(fractions, self.errors.half, self.errors.steepness)

    def measure(
        self, quantity: str | Callable[[Any], Any], decoder: LocPMAP | None = None, *, seed: int = 0, **options: Any
    ) -> Measurement:
        """Measure a quantity with the learned error fields; options as in :func:`locpmap.measure`."""
        return measure(self.potentials, quantity, self.sampler(decoder or MEASURING), seed=seed, **options)
