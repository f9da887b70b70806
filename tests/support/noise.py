"""LocPMAP with a noise scheme of the test's choice, whatever the model allows."""

from __future__ import annotations

from locpmap.inference.locpmap import LocPMAP
from locpmap.potentials import Potentials


class PlainNoise(LocPMAP):
    """LocPMAP with plain noise, also where lazy noise would do."""

    def _noise(self, potentials: Potentials) -> str:
        return "plain"


class LazyNoise(LocPMAP):
    """LocPMAP, which must choose lazy noise."""

    def _noise(self, potentials: Potentials) -> str:
        assert super()._noise(potentials) == "lazy"
        return "lazy"


SCHEMES = {"plain": PlainNoise, "lazy": LazyNoise}
