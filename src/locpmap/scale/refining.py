"""Refining rasters of any size: the model of :class:`locpmap.Refiner`, made window by window."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from locpmap.arrays import Restore
from locpmap.errors import InputError, unknown
from locpmap.formats.atomic import PathLike
from locpmap.graphs import Grid
from locpmap.inference import LocPMAP
from locpmap.inference.decoder import within
from locpmap.potentials import Potentials
from locpmap.refining.guiding import RADII
from locpmap.refining.model import compose
from locpmap.refining.reading import SCORES, Given, read
from locpmap.refining.refiner import Refiner, as_refiner
from locpmap.refining.weights import Weights
from locpmap.scale.api import TiledResult, tiled
from locpmap.scale.box import Box
from locpmap.scale.colours import Palette
from locpmap.scale.reach import reach_of
from locpmap.scale.sources import as_mask, as_source, check_places, fingerprint, piece_of

CORNER = 256  # rows and columns by which scores are judged to be logits or probabilities


def refine_tiled(
    image: Any,
    logits: Any,
    model: Refiner | PathLike | None = None,
    *,
    scores: str = "auto",
    strength: float = 1.0,
    smoothing: float = 0.0,
    temperature: float = 1.0,
    n_samples: int = 50,
    blocks: Any = "sites",
    max_sweeps: int = 32,
    seed: int = 0,
    device: str = "cpu",
    mask: Any = None,
    stride: float = 1.0,
    tile: int | tuple[int, int] = 1024,
) -> TiledResult:
    """:func:`locpmap.refine` for rasters that do not fit into memory.

    Tiles of any size give the same bytes.  Beside :func:`locpmap.refine` with the same ``max_sweeps`` only the image's
    mean contrast may round otherwise: it is summed up in one pass over the image, band by band, where colours count.

    Args:
        image: (H, W) or (H, W, C), in anything that :func:`locpmap.infer_tiled` takes; None if there is none.
        logits: Scores (H, W, K) of the image's size.
        model: As in :func:`locpmap.refine`, like all arguments but these:
        scores: "auto" judges by the raster's first corner.
        strength: See there.
        smoothing: See there.
        temperature: See there.
        n_samples: See there.
        blocks: "sites" or a tile (h, w).
        max_sweeps: Sweeps after which a climb stops; halos are twice as wide, and 64 pixels wider where places that
            look alike have a say.
        seed: See there.
        device: See :func:`locpmap.infer_tiled`.
        mask: Booleans (H, W), True where a pixel is ignored; pixels without data in TIFF files are ignored, too.
        stride: Pixels to one score of the network that the logits were resized from.
        tile: Height and width of the tiles.

    >>> import numpy as np
    >>> truth = np.arange(90) // 30 * np.ones((60, 1), int)
    >>> logits = 2 * np.eye(3)[truth] + np.random.default_rng(0).normal(size=(60, 90, 3))
    >>> result = refine_tiled(truth * 100, logits, smoothing=1.0, tile=40)
    >>> bool((result.labels.compute() == truth).mean() > 0.99)
    True
    """
    within("strength", strength, 0)
    within("smoothing", smoothing, 0)
    within("temperature", temperature, 0, open_low=True)
    within("stride", stride, 1)
    source, pixels = as_source(logits, "logits"), None if image is None else as_source(image, "image")
    if len(source.shape) != 3 or 0 in source.shape:
        raise InputError(f"logits has shape {tuple(source.shape)}, expected (H, W, K)")
    if source.shape[2] < 2:
        raise InputError("logits has one label, expected at least two")
    size = (int(source.shape[0]), int(source.shape[1]))
    if pixels is not None and (len(pixels.shape) not in (2, 3) or tuple(pixels.shape[:2]) != size or 0 in pixels.shape):
        raise InputError(
            f"image has shape {tuple(pixels.shape)}, expected {size} like logits, with or without channels"
        )
    check_places(pixels, source)
    mask = as_mask(mask, size, logits=source, image=pixels)
    given = {"strength": strength, "smoothing": smoothing, "temperature": temperature, "stride": stride}
    options = {name: float(number) for name, number in given.items()}
    raster = RefinedRaster(pixels, source, mask, as_refiner(model).weights, _kind(source, mask, scores), options)
    decoder = LocPMAP(n_samples, blocks=blocks, start="perturbed", max_sweeps=max_sweeps)
    if not raster.coupled:  # then all samples have the same conditional probabilities, and climbs have nothing to do
        decoder = replace(decoder, n_samples=1, max_sweeps=1)
    reach = reach_of(decoder)._replace(margin=(raster.ring_width, raster.ring_width))
    return tiled(raster, decoder, tile, seed=seed, backend="auto", device=device, reach=reach)


def _kind(source: Any, mask: Any, scores: str) -> str:
    """Logits or probabilities: as told, or by the look of a corner."""
    if scores not in SCORES:
        raise unknown("scores", scores, SCORES)
    if scores != "auto":
        return scores
    first = (slice(CORNER), slice(CORNER))
    corner = np.asarray(source[first])
    rows = corner.reshape(-1, corner.shape[2]) if mask is None else corner[~np.asarray(mask[first])]
    if not len(rows):
        raise InputError("scores is 'auto', and the raster's first corner has no data: say 'logits' or 'probabilities'")
    seen = (read(None, rows[None], "hwk", kind).scores for kind in ("auto", "logits"))
    return "logits" if np.array_equal(*seen) else "probabilities"


@dataclass(frozen=True, eq=False)
class RefinedRaster:
    """An image and scores in sources that may be large; a model for :func:`locpmap.scale.api.tiled`."""

    image: Any
    logits: Any
    mask: Any
    weights: Weights
    scores: str
    options: dict[str, float]

    @cached_property
    def builder(self) -> RefinedWindow:
        """With the palette of the whole image, if colours count."""
        height, width, n_labels = (int(n) for n in self.logits.shape)
        palette = Palette.of(self.image, self.mask) if self.image is not None and self._sees_colours else None
        return RefinedWindow((height, width, n_labels), palette, self.weights, self.scores, self.options)

    @property
    def _learned(self) -> tuple[float, Any]:
        """What places that look alike count for, and the pairwise weights."""
        _, _, guided, pairwise = self.weights.at(self.options["stride"])
        strength = self.options["strength"]
        return strength * guided, strength * pairwise + [0.0, self.options["smoothing"]]

    @property
    def coupled(self) -> bool:
        """Whether neighbours have a say."""
        return bool((self._learned[1] != 0).any())

    @property
    def _sees_colours(self) -> bool:
        guided, pairwise = self._learned
        return guided > 0 or bool((pairwise[:, 1] != 0).any())

    @property
    def ring_width(self) -> int:
        """How far places that look alike are searched for."""
        return max(RADII) if self._learned[0] > 0 and self.image is not None else 0

    def pieces(self, window: Box) -> list[Any]:
        """The mask, the scores, and the image where it counts."""
        mask = None if self.mask is None else piece_of(self.mask, window.slices)
        image = [] if self.builder.palette is None else [piece_of(self.image, window.slices)]
        return [mask, piece_of(self.logits, window.slices), *image]

    def example(self, unread: float | None) -> Potentials:
        """Make a model of four pixels; weights are never negative."""
        return Potentials.grid(np.zeros((2, 2, self.logits.shape[2]), np.float32), (0.0, 0.0))

    def identity(self) -> dict[str, Any]:
        """Sources, weights and options."""
        digest = hashlib.sha256()
        for name in self.weights.__dataclass_fields__:
            digest.update(np.ascontiguousarray(getattr(self.weights, name)).data)
        return {
            "shape": list(self.builder.shape),
            "logits": fingerprint(self.logits),
            "image": None if self.image is None else fingerprint(self.image),
            "mask": None if self.mask is None else fingerprint(self.mask),
            "model": digest.hexdigest()[:32],
            "refining": {**self.options, "scores": self.scores},
        }


@dataclass(frozen=True, eq=False)
class RefinedWindow:
    """Potentials of windows of a raster that is refined."""

    shape: tuple[int, int, int]
    palette: Palette | None
    weights: Weights
    scores: str
    options: dict[str, float]

    @property
    def dtype(self) -> Any:
        """Refining works in single precision."""
        return np.dtype(np.float32)

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """From the scores and, where there is a palette, the image."""
        logits, *image = pieces
        if mask is not None:  # where there may be anything
            logits = np.where(mask[..., None], 1 / self.shape[2], logits)
        scores = read(None, logits, "hwk", self.scores).scores
        pixels = None if self.palette is None else self.palette.scaled(image[0], mask)
        given = Given(pixels, scores, *window.shape, batched=False, restore=Restore())
        colours = None if self.palette is None else self.palette.colours
        made = compose(given, self.weights, **self.options, mask=mask, colours=colours)
        height, width, _ = self.shape
        return replace(made, structure=Grid(*window.shape, 4, window.top, window.left, width, height))
