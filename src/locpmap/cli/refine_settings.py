"""The settings of ``locpmap refine``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locpmap.inference import LocPMAP
    from locpmap.refining import Refiner

NOT_ADJUSTED = {"strength": 1.0, "smoothing": 0.0, "temperature": 1.0}


@dataclass(frozen=True)
class Settings:
    """Hold everything that the results depend on besides the inputs."""

    layout: str
    scores: str
    stride: float | None
    strength: float
    smoothing: float
    temperature: float
    n_samples: int
    blocks: str
    seed: int
    device: str

    def check(self, refiner: Refiner) -> None:
        """Try them on a tiny image, so that a wrong one is named once, and before anything is read or written."""
        import numpy as np

        shape = (20, 8, 8) if self.layout == "khw" else (8, 8, 20)
        prepared = self.adjusted(refiner).prepare(np.zeros((8, 8)), np.full(shape, 0.05, np.float32), **self.reading)
        prepared.refine(replace(self.decoder(), n_samples=1), seed=self.seed, device=self.device)

    def adjusted(self, refiner: Refiner) -> Refiner:
        """Return the refiner with these adjustments, or, where none is given, with those that it was saved with."""
        given = {"strength": self.strength, "smoothing": self.smoothing, "temperature": self.temperature}
        return refiner if given == NOT_ADJUSTED else refiner.adjusted(**given)

    @property
    def reading(self) -> dict[str, Any]:
        """Return the options of :meth:`locpmap.Refiner.prepare`."""
        return {"layout": self.layout, "scores": self.scores, "stride": self.stride}

    def decoder(self, **options: Any) -> LocPMAP:
        """Return the decoder of labels and of areas."""
        from locpmap.inference import LocPMAP

        return LocPMAP(self.n_samples, blocks=self.blocks, start="perturbed", **options)
