"""One tile: its window is read, decoded as a part of the whole, and cut down to what it answers for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import BackendError, InputError, LocpmapError
from locpmap.inference import infer
from locpmap.inference.decoder import Decoder
from locpmap.inference.sampling import Sampler
from locpmap.potentials import Potentials
from locpmap.result import Result
from locpmap.scale.model import Builder, TiledModel
from locpmap.scale.sources import Piece
from locpmap.scale.tiling import Tile


class Decoded(NamedTuple):
    """The answer of a tile; ``variance`` and ``entropy`` follow from the probabilities."""

    labels: Array  # (h, w) int16; -1 where masked
    probability: Array | None  # (h, w, L)
    converged: bool


@dataclass(frozen=True, eq=False)
class Decoding:
    """How the tiles of a raster are decoded; called with a tile and the pieces of its window."""

    builder: Builder
    decoder: Decoder
    seed: int
    backend: str
    device: str
    n_threads: int | None = 1  # workers have one tile per core
    least_weight: float | None = None  # the raster's smallest Potts weight, on which the choice of noise depends

    def __call__(self, tile: Tile, *pieces: Any) -> Decoded:
        """Read what is not read yet, and decode."""
        core = tile.core.within(tile.window).slices
        try:
            mask, *rest = (piece.read() if isinstance(piece, Piece) else piece for piece in pieces)
            if mask is not None and mask[core].all():
                return self._nothing(tile)
            result = self._infer(self.builder(tile.window, mask, *rest))
        except BackendError:  # which is not about this window
            raise
        except LocpmapError as error:
            top, bottom, left, right = tile.window
            where = f"in the window of rows {top} to {bottom - 1} and columns {left} to {right - 1}"
            raise InputError(f"{where}: {error}") from None
        probability = None if result.probability is None else np.ascontiguousarray(result.probability[core])
        return Decoded(result.labels[core].astype(np.int16), probability, result.converged)

    def _infer(self, potentials: Potentials) -> Result:
        how: dict[str, Any] = {"backend": self.backend, "device": self.device, "n_threads": self.n_threads}
        pairwise = replace(potentials.pairwise, whole_least=self.least_weight)
        return infer(replace(potentials, pairwise=pairwise), self.decoder, seed=self.seed, **how)

    def _nothing(self, tile: Tile) -> Decoded:
        """The answer where there are no data."""
        shape, soft = tile.core.shape, self.decoder.has_probability
        probability = np.zeros((*shape, self.builder.shape[2]), self.builder.dtype) if soft else None
        return Decoded(np.full(shape, -1, np.int16), probability, True)

    def _quick(self) -> Decoding:
        """The same for one sweep."""
        once = {"max_sweeps": 1, **({"n_samples": 1} if isinstance(self.decoder, Sampler) else {})}
        return replace(self, decoder=replace(self.decoder, **once))  # type: ignore[type-var]

    def try_out(self, example: Potentials) -> None:
        """Refuse what cannot be done where this is called, such as a device that is not there."""
        self._quick()._infer(example)

    def settled(self, model: TiledModel) -> Decoding:
        """Return the same with the raster's smallest weight, which a tile cannot know; try the options on tiny models.

        Weights that are not in memory are read only if the choice of noise depends on their sign.
        """
        here = self._quick()
        if self.device != "cpu":  # which may be where the workers are, and not here
            here = replace(here, backend="auto", device="cpu")
        example = model.example(0.0)
        if here._infer(example).noise != here._infer(model.example(-1.0)).noise:
            example = model.example(None)
        return replace(self, least_weight=example.pairwise.least_weight)
