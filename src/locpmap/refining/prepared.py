"""One image with its scores, made into a model once: what refining and measuring share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from locpmap.inference import LocPMAP, infer
from locpmap.measuring import Measurement, measure
from locpmap.potentials import Potentials
from locpmap.refining.model import compose
from locpmap.refining.presence import ALWAYS, presence_of, shares_of
from locpmap.refining.reading import Given
from locpmap.refining.weights import Weights
from locpmap.result import Result


@dataclass(frozen=True, eq=False)
class Prepared:
    """What :meth:`locpmap.Refiner.prepare` makes: decode it, measure in it, or hand its potentials to any decoder."""

    potentials: Potentials
    shared: float  # the standard deviation of what all pixels err by together, as in :func:`locpmap.measure`
    rare: tuple[float, float] = ALWAYS  # half and steepness of `presence_of`; half 0: labels are always there

    @classmethod
    def of(
        cls, given: Given, weights: Weights, *, temperature: float = 1.0, stride: float | None = None, **how: Any
    ) -> Prepared:
        """The model that weights make of what was read; see :func:`locpmap.refining.model.compose`."""
        potentials = compose(given, weights, temperature=temperature, stride=stride, **how)
        stride = given.stride if stride is None else stride
        return cls(potentials, weights.shared_at(stride) / temperature, weights.presence_at(stride))

    def refine(
        self,
        *,
        n_samples: int = 50,
        blocks: Any = "sites",
        start: Any = "perturbed",
        seed: int = 0,
        device: str = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> Result:
        """As :func:`locpmap.refine`."""
        decoder = LocPMAP(n_samples, blocks=blocks, start=start)
        if not self.potentials.pairwise.coupled:  # then conditional probabilities are the same for every sample
            decoder = replace(decoder, n_samples=1, temperature=0.0)
        return infer(self.potentials, decoder, seed=seed, device=device, progress=progress)

    @cached_property
    def presence(self) -> Any:
        """How likely each label is to be in the image, as :func:`locpmap.measure` takes it; None: labels always are."""
        shares = shares_of(self.potentials) if self.rare[0] > 0 else None
        return None if shares is None else presence_of(shares, *self.rare)

    def measure(
        self, quantity: str | Callable[[Any], Any], *, n_samples: int = 200, seed: int = 0, **options: Any
    ) -> Measurement:
        """As :meth:`locpmap.Refiner.measure`."""
        options = {"start": "perturbed", "shared": self.shared, "presence": self.presence, **options}
        return measure(self.potentials, quantity, n_samples=n_samples, seed=seed, **options)
