"""A refiner's model of one image, which can be refined and measured repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from locpmap.inference import LocPMAP, infer
from locpmap.inference.decoder import Decoder
from locpmap.measuring import Measurement, measure
from locpmap.potentials import Potentials
from locpmap.refining.model import AS_LEARNED, compose
from locpmap.refining.presence import ALWAYS, predicted_fractions, presence_of
from locpmap.refining.reading import Given
from locpmap.refining.weights import Adjustment, Weights
from locpmap.result import Result

REFINING = LocPMAP(start="perturbed")
MEASURING = LocPMAP(n_samples=200, start="perturbed")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A refiner's model of an image or a batch, returned by :meth:`locpmap.Refiner.prepare`.

    Attributes:
        potentials (Potentials): The Potts model, for any decoder of :func:`locpmap.infer`.
        shared (float): Standard deviation of the error shared by all pixels, as in :func:`locpmap.measure`.
        presence_parameters (tuple of float): The parameters ``half`` and ``steepness`` of the presence probability. If
            ``half`` is 0, every label is assumed to be present.
    """

    potentials: Potentials
    shared: float
    presence_parameters: tuple[float, float] = ALWAYS  # of `presence_of`

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
        stride = given.stride if stride is None else stride
        return cls(potentials, weights.shared_at(stride) / adjustment.temperature, weights.presence_at(stride))

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
        if isinstance(chosen, LocPMAP) and self._same_for_all_samples(chosen):
            chosen = replace(chosen, n_samples=1, temperature=0.0)
        return infer(self.potentials, chosen, seed=seed, device=device, progress=progress)

    def _same_for_all_samples(self, decoder: LocPMAP) -> bool:
        """Return whether one sample gives the same result as many: no coupling, and only conditional probabilities."""
        conditional = decoder.probability == "conditional" and not decoder.keep_samples
        return conditional and not self.potentials.pairwise.coupled

    @cached_property
    def presence(self) -> Any:
        """Probability (N, L) that each label occurs in the image, for the argument ``presence`` of `locpmap.measure`.

        It is None, which means 1 for all labels, if ``half`` is 0 or a score is -inf.
        """
        fractions = predicted_fractions(self.potentials) if self.presence_parameters[0] > 0 else None
        return None if fractions is None else presence_of(fractions, *self.presence_parameters)

    def measure(
        self, quantity: str | Callable[[Any], Any], decoder: LocPMAP | None = None, *, seed: int = 0, **options: Any
    ) -> Measurement:
        """Measure a quantity with the learned shared error and presence; options as in :func:`locpmap.measure`."""
        options = {"shared": self.shared, "presence": self.presence, **options}
        return measure(self.potentials, quantity, decoder or MEASURING, seed=seed, **options)
