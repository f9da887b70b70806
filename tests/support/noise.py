"""LocPMAP with a fixed noise scheme."""

from __future__ import annotations

from locpmap.inference.locpmap import LocPMAP
from locpmap.potentials import Potentials


class PlainNoise(LocPMAP):
    """LocPMAP with plain noise, even if the model allows lazy noise."""

    def _noise(self, potentials: Potentials) -> str:
        return "plain"


class LazyNoise(LocPMAP):
    """LocPMAP with a check that it chooses lazy noise."""

    def _noise(self, potentials: Potentials) -> str:
        assert super()._noise(potentials) == "lazy"
        return "lazy"


SCHEMES = {"plain": PlainNoise, "lazy": LazyNoise}
