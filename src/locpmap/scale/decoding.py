"""Decoding of one tile: its window is read and decoded, and the result is cropped to the tile."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import BackendError, InputError, LocpmapError
from locpmap.inference import LocPMAP, infer
from locpmap.inference.decoder import Decoder
from locpmap.inference.sampling import Sampler
from locpmap.measuring.quantities import area
from locpmap.potentials import Potentials
from locpmap.result import Result
from locpmap.scale.model import Builder, TiledModel
from locpmap.scale.sources import read_piece
from locpmap.scale.tiling import Tile

Finish = Callable[[Potentials, Result], Result]


class Decoded(NamedTuple):
    """The result of a tile; ``variance`` and ``entropy`` are computed from the probabilities."""

    labels: Array  # (h, w) or, in a volume, (d, h, W), int16; -1 where masked
    probability: Array | None  # the same with an axis L
    converged: bool
    areas: Array | None = None  # (M, L) number of sites of every sample and label


@dataclass(frozen=True, eq=False)
class Decoding:
    """A function that decodes a tile, given the pieces of its window."""

    builder: Builder
    decoder: Decoder
    seed: int
    backend: str
    device: str
    least_weight: float | None = None  # the raster's smallest Potts weight, which determines the kind of noise
    finish: Finish | None = None  # applied to the result of a window

    def __call__(self, tile: Tile, *pieces: Any) -> Decoded:
        """Read the pieces that are still in files, and decode the tile."""
        core = tile.core.within(tile.window).slices
        try:
            mask, *rest = map(read_piece, pieces)
            if mask is not None and mask[core].all():
                return self._masked(tile)
            potentials = self.builder(tile.window, mask, *rest)
            result = self._infer(potentials)
            result = result if self.finish is None else self.finish(potentials, result)
        except BackendError:  # does not concern the window
            raise
        except LocpmapError as error:
            top, bottom, left, right = tile.window
            first, second = ("rows", "columns") if len(self.builder.shape) == 3 else ("planes", "rows")
            where = f"in the window of {first} {top} to {bottom - 1} and {second} {left} to {right - 1}"
            raise InputError(f"{where}: {error}") from None
        probability = None if result.probability is None else np.ascontiguousarray(result.probability[core])
        areas = None
        if self.n_counted:
            areas = np.stack([area(sample[core], self.builder.shape[-1]) for sample in result.samples])
        return Decoded(result.labels[core].astype(np.int16), probability, result.converged, areas)

    def _infer(self, potentials: Potentials) -> Result:
        # Workers decode one tile per core.
        how: dict[str, Any] = {"backend": self.backend, "device": self.device, "n_threads": 1}
        pairwise = replace(potentials.pairwise, whole_least=self.least_weight)
        return infer(replace(potentials, pairwise=pairwise), self.decoder, seed=self.seed, **how)

    def _masked(self, tile: Tile) -> Decoded:
        """Return the result of a tile whose sites are all masked."""
        *whole, n_labels = self.builder.shape[2:]
        shape, soft = (*tile.core.shape, *whole), self.decoder.has_probability
        probability = np.zeros((*shape, n_labels), self.builder.dtype) if soft else None
        areas = np.zeros((self.n_counted, n_labels), np.int64) if self.n_counted else None
        return Decoded(np.full(shape, -1, np.int16), probability, True, areas)

    @property
    def n_counted(self) -> int:
        """Number of samples in which the areas of labels are counted."""
        return self.decoder.n_samples if isinstance(self.decoder, LocPMAP) and self.decoder.keep_samples else 0

    def _one_sweep(self) -> Self:
        once = {"max_sweeps": 1, **({"n_samples": 1} if isinstance(self.decoder, Sampler) else {})}
        return replace(self, decoder=replace(self.decoder, **once))  # type: ignore[type-var]

    def check(self, example: Potentials) -> None:
        """Raise if the model cannot be decoded in this process, for example because the device is missing."""
        self._one_sweep()._infer(example)

    def with_least_weight(self, model: TiledModel) -> Self:
        """Return a copy with the raster's smallest weight, which cannot be computed from a tile.

        The options are checked on tiny models. Weights that are not in memory are read only if the kind of noise
        depends on their sign.
        """
        here = self._one_sweep()
        if self.device != "cpu":  # the device may exist on the workers only
            here = replace(here, backend="auto", device="cpu")
        example = model.example(0.0)
        if here._infer(example).noise != here._infer(model.example(-1.0)).noise:
            example = model.example(None)
        return replace(self, least_weight=example.pairwise.least_weight)
