"""The settings of ``locpmap refine``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locpmap.inference import LocPMAP
    from locpmap.refining import Refiner


@dataclass(frozen=True)
class Settings:
    """Options that determine the results, together with the inputs and the refiner."""

    layout: str
    scores: str
    stride: float | None
    n_samples: int
    blocks: str
    seed: int
    device: str

    def check(self, refiner: Refiner) -> None:
        """Refine a tiny image, to raise errors about settings once and before files are read."""
        import numpy as np

        shape = (20, 8, 8) if self.layout == "khw" else (8, 8, 20)
        prepared = refiner.prepare(np.zeros((8, 8)), np.full(shape, 0.05, np.float32), **self.reading)
        prepared.refine(replace(self.decoder(), n_samples=1), seed=self.seed, device=self.device)

    @property
    def reading(self) -> dict[str, Any]:
        """Options of :meth:`locpmap.Refiner.prepare`."""
        return {"layout": self.layout, "scores": self.scores, "stride": self.stride}

    def decoder(self, **options: Any) -> LocPMAP:
        """Return the decoder for labels and areas."""
        from locpmap.inference import LocPMAP

        return LocPMAP(self.n_samples, blocks=self.blocks, start="perturbed", **options)
