"""One image with its scores, made into a model once: what refining and measuring share."""

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
from locpmap.refining.presence import ALWAYS, presence_of, shares_of
from locpmap.refining.reading import Given
from locpmap.refining.weights import Adjustment, Weights
from locpmap.result import Result

REFINING = LocPMAP(start="perturbed")
MEASURING = LocPMAP(n_samples=200, start="perturbed")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Hold the model of an image: decode it, measure in it, or hand its potentials to any decoder.

    Returned by :meth:`locpmap.Refiner.prepare`.
    """

    potentials: Potentials
    shared: float  # standard deviation of the error that all pixels share, as in :func:`locpmap.measure`
    rare: tuple[float, float] = ALWAYS  # half and steepness of `presence_of`; half 0: labels are always there

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
        """Build the model; see :func:`locpmap.refining.model.compose`."""
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
        """Decode the model, as :func:`locpmap.refine`."""
        chosen = REFINING if decoder is None else decoder
        if isinstance(chosen, LocPMAP) and self._same_for_all_samples(chosen):
            chosen = replace(chosen, n_samples=1, temperature=0.0)
        return infer(self.potentials, chosen, seed=seed, device=device, progress=progress)

    def _same_for_all_samples(self, decoder: LocPMAP) -> bool:
        """Return whether every sample has the same conditional probabilities, and nothing else is asked for."""
        conditional = decoder.probability == "conditional" and not decoder.keep_samples
        return conditional and not self.potentials.pairwise.coupled

    @cached_property
    def presence(self) -> Any:
        """Return the probability of each label to be in the image, as `locpmap.measure` takes it; None: always."""
        shares = shares_of(self.potentials) if self.rare[0] > 0 else None
        return None if shares is None else presence_of(shares, *self.rare)

    def measure(
        self, quantity: str | Callable[[Any], Any], decoder: LocPMAP | None = None, *, seed: int = 0, **options: Any
    ) -> Measurement:
        """Measure a quantity in samples that share errors as learned; options as in :func:`locpmap.measure`."""
        options = {"shared": self.shared, "presence": self.presence, **options}
        return measure(self.potentials, quantity, decoder or MEASURING, seed=seed, **options)
