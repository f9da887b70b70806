"""Tiled refinement: the model of :class:`locpmap.Refiner`, built window by window."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Restore, refuse_masked
from locpmap.errors import InputError, InputTypeError, one_of, within
from locpmap.formats.atomic import PathLike
from locpmap.graphs import Grid
from locpmap.inference import ErrorFields, LocPMAP
from locpmap.potentials import Potentials
from locpmap.refining.adapting import KEPT, Adaptation, adapted
from locpmap.refining.api import as_refiner
from locpmap.refining.guiding import RADII, guided_log_mean
from locpmap.refining.labelled import by_name, mask_by_name
from locpmap.refining.model import compose, factors
from locpmap.refining.prepared import averaged, errors_of, fields_of, with_errors
from locpmap.refining.reading import SCORES, Given, read
from locpmap.refining.refiner import Refiner
from locpmap.refining.weights import Adjustment, Errors, Weights
from locpmap.scale.api import TiledResult, tiled
from locpmap.scale.model import as_window
from locpmap.scale.sources import as_mask, as_source, check_places, fingerprint, piece_of, read_piece
from locpmap.scale.tiling import Box, reach_of
from locpmap.scale.whole_raster import Palette, at_lattice, predicted_fractions

TILES = LocPMAP(start="perturbed", max_sweeps=32)
CORNER = 256  # rows and columns read to decide between logits and probabilities


def refine_tiled(
    image: Any,
    logits: Any,
    model: Refiner | PathLike | None = None,
    *,
    scores: str = "auto",
    stride: float = 1.0,
    mask: Any = None,
    decoder: LocPMAP = TILES,
    tile: int | tuple[int, int] = 1024,
    seed: int = 0,
    device: str = "cpu",
) -> TiledResult:
    """Refine a raster that does not fit into memory, tile by tile.

    The result does not depend on the tile size. It equals that of :func:`locpmap.refine` with the same decoder up to
    rounding of the image's colour statistics, which are computed in one pass over the image.

    Args:
        image (array): (H, W) or (H, W, C), in any array type of :func:`locpmap.infer_tiled`; None if there is none.
        logits (array): Scores (H, W, K) at the size of the image.
        model (Refiner, str or os.PathLike, default None): As in :func:`locpmap.refine`.
        scores (str, default "auto"): As in :func:`locpmap.refine`. "auto" checks the values in the first 256 rows and
            columns.
        stride (float, default 1.0): Pixels per score of the network, along an axis, before the logits were resized.
        mask (array, default None): Booleans (H, W), True where a pixel is ignored. Pixels without data in TIFF files
            are ignored as well.
        decoder (LocPMAP): LocPMAP with blocks of bounded size, as in :func:`locpmap.infer_tiled`. The default is
            ``LocPMAP(start="perturbed", max_sweeps=32)``.
        tile (int or tuple of int, default 1024): Height and width of the tiles, or one number for both.
        seed (int, default 0): Seed of the random generator.
        device (str, default "cpu"): "cpu" or "cuda", for all tiles.

    Returns:
        TiledResult: As from :func:`locpmap.infer_tiled`.

    Raises:
        InputError: If shapes do not match, or the kind of scores cannot be determined.

    Notes:
        The halo is 64 pixels wider than that of :func:`locpmap.infer_tiled` if the model uses similar pixels. If no
        neighbours are coupled, at most two sweeps are used, and one sample if there are no error fields, because more
        would not change the result. If the refiner has error fields and learned the presence of labels, the predicted
        area of each label is computed first, in a separate pass over the raster. A refiner adapts to the whole
        raster, in another pass.

    Example:
        >>> from locpmap.scale import refine_tiled
        >>> truth = np.arange(90) // 30 * np.ones((60, 1), int)
        >>> logits = 2 * np.eye(3)[truth] + np.random.default_rng(0).normal(size=(60, 90, 3))
        >>> result = refine_tiled(truth * 100, logits, lp.Refiner.load().adjusted(smoothing=1.0), tile=40)
        >>> bool((result.labels.compute() == truth).mean() > 0.99)
        True

    See Also:
        :func:`locpmap.refine`, :func:`locpmap.infer_tiled`.
    """
    within("stride", stride, 1)
    if not isinstance(decoder, LocPMAP):
        raise InputTypeError(f"decoder is {decoder!r}, expected a LocPMAP")
    refuse_masked(image, "image")
    refuse_masked(logits, "logits")
    image, logits, _ = by_name(image, logits, "hwk")
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
    mask = as_mask(mask_by_name(mask), size, logits=source, image=pixels)
    refiner = as_refiner(model)
    learned = (refiner.weights, refiner.adjustment, float(stride))
    raster = RefinedRaster(pixels, source, mask, _kind(source, mask, scores), *learned)
    sampler = raster.sampler(decoder)
    reach = reach_of(sampler)._replace(margin=(raster.ring_width, raster.ring_width))
    mean = raster.has_fields and decoder.probability != "votes"
    finish = partial(averaged, decoder=decoder, votes=raster.errors.votes) if mean else None
    return tiled(raster, sampler, tile, seed=seed, backend="auto", device=device, reach=reach, finish=finish)


def _kind(source: Any, mask: Any, scores: str) -> str:
    """Return "logits" or "probabilities", for "auto" by the values in the first corner of the raster."""
    if one_of("scores", scores, SCORES) != "auto":
        return scores
    first = (slice(CORNER), slice(CORNER))
    corner = np.asarray(source[first])
    rows = corner.reshape(-1, corner.shape[2]) if mask is None else corner[~np.asarray(mask[first])]
    if not len(rows):
        raise InputError(
            "scores is 'auto', and the raster's first corner has no data, expected 'logits' or 'probabilities'"
        )
    seen = read(None, rows[None], "hwk", "auto").scores
    return "logits" if np.array_equal(seen[0, 0], rows.astype(np.float32)) else "probabilities"


@dataclass(frozen=True, eq=False)
class RefinedRaster:
    """A model for :func:`locpmap.scale.api.tiled`: an image and scores in sources that may exceed the memory."""

    image: Any
    logits: Any
    mask: Any
    scores: str
    weights: Weights
    adjustment: Adjustment
    stride: float

    @cached_property
    def builder(self) -> RefinedWindow:
        """The builder, with the palette of the whole image if the model uses colours."""
        height, width, n_labels = (int(n) for n in self.logits.shape)
        palette = Palette.of(self.image, self.mask) if self.image is not None and self._uses_colours else None
        learned = (self.weights, self.adjustment, self.stride)
        builder = RefinedWindow((height, width, n_labels), palette, self.scores, *learned)
        rule = self.weights.rule_at(self.stride)
        if palette is None or not rule.threshold:
            return builder
        if not self.ring_width:
            return builder.adapted(KEPT)

        def layers(window: Box) -> tuple[Any, Any, Any]:
            mask, *rest = map(read_piece, self._pieces(window, coloured=True))
            return *builder.layers(window, mask, *rest), mask

        chosen = at_lattice(builder.shape, self.ring_width, layers)
        found = adapted([chosen], *factors(self.weights, self.adjustment, self.stride), rule)
        return builder.adapted(Adaptation(*(float(one[0]) for one in found)))

    @cached_property
    def errors(self) -> Errors:
        """The learned parameters of samples."""
        errors, palette = errors_of(self.weights, self.adjustment, self.stride), self.builder.palette
        return errors if palette is None else errors._replace(votes=errors.votes * palette.whole.adaptation.strength)

    @property
    def has_fields(self) -> bool:
        """Whether the refiner has error fields."""
        return any(self.errors.sizes)

    def sampler(self, decoder: LocPMAP) -> LocPMAP:
        """Return the decoder of :func:`locpmap.refine`, with as few samples and sweeps as give the same result."""
        if not self.coupled:  # one sweep finds the maximum, and a second one changes nothing
            decoder = replace(decoder, max_sweeps=min(2, decoder.max_sweeps))
        if self.has_fields:
            return replace(with_errors(decoder, self.errors, self._fields), probability="votes")
        conditional = decoder.probability == "conditional" and not decoder.keep_samples and decoder.fields is None
        return replace(decoder, n_samples=1) if conditional and not self.coupled else decoder

    def _fields(self) -> ErrorFields:
        fractions = partial(predicted_fractions, self, self.ring_width)
        return fields_of(self.errors, max(self.builder.shape[:2]), fractions)

    @property
    def _learned(self) -> tuple[float, Any]:
        """The factor of the guided log mean and the pairwise weights (2, 2), both after the adjustment."""
        _, _, guided, pairwise = self.weights.at(self.stride)
        strength = self.adjustment.strength
        return strength * guided, strength * pairwise + [0.0, self.adjustment.smoothing]

    @property
    def coupled(self) -> bool:
        """Whether neighbours are coupled."""
        return bool((self._learned[1] != 0).any())

    @property
    def _uses_colours(self) -> bool:
        guided, pairwise = self._learned
        return guided > 0 or bool((pairwise[:, 1] != 0).any()) or self.weights.rule_at(self.stride).threshold > 0

    @property
    def ring_width(self) -> int:
        """Largest distance of similar pixels, 0 if the model does not use them."""
        return max(RADII) if self._learned[0] > 0 and self.image is not None else 0

    def pieces(self, window: Box) -> list[Any]:
        """Return the mask, the scores, and the image if the model uses colours."""
        return self._pieces(window, self.builder.palette is not None)

    def _pieces(self, window: Box, coloured: bool) -> list[Any]:
        mask = None if self.mask is None else piece_of(self.mask, window.slices)
        image = [piece_of(self.image, window.slices)] if coloured else []
        return [mask, piece_of(self.logits, window.slices), *image]

    def example(self, unread: float | None) -> Potentials:
        """Return a model of four pixels; its weights are 0, since a refiner's weights are never negative."""
        height, width, n_labels = (int(n) for n in self.logits.shape)
        return as_window(Potentials.grid(np.zeros((2, 2, n_labels), np.float32), (0.0, 0.0)), height, width)

    def identity(self) -> dict[str, Any]:
        """Return the shape, fingerprints of sources and weights, and the options."""
        digest = hashlib.sha256()
        for name in self.weights.__dataclass_fields__:
            digest.update(np.ascontiguousarray(getattr(self.weights, name)).data)
        return {
            "shape": list(self.builder.shape),
            "logits": fingerprint(self.logits),
            "image": None if self.image is None else fingerprint(self.image),
            "mask": None if self.mask is None else fingerprint(self.mask),
            "model": digest.hexdigest()[:32],
            "refining": {**asdict(self.adjustment), "stride": self.stride, "scores": self.scores},
        }


@dataclass(frozen=True, eq=False)
class RefinedWindow:
    """The builder of a refined raster: potentials of a window from scores and colours."""

    shape: tuple[int, int, int]
    palette: Palette | None
    scores: str
    weights: Weights
    adjustment: Adjustment
    stride: float
    dtype: ClassVar[Any] = np.dtype(np.float32)  # refining works in single precision

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """Build the potentials from the scores and, if there is a palette, the image."""
        given = self.given(window, mask, *pieces)
        whole = None if self.palette is None else self.palette.whole
        made = compose(given, self.weights, self.adjustment, mask=mask, stride=self.stride, whole=whole).potentials
        height, width, _ = self.shape
        return replace(made, structure=Grid(*window.shape, 4, window.top, window.left, width, height))

    def adapted(self, adaptation: Adaptation) -> RefinedWindow:
        """Return the builder with an adaptation."""
        assert self.palette is not None
        whole = self.palette.whole._replace(adaptation=adaptation)
        return replace(self, palette=replace(self.palette, whole=whole))

    def layers(self, window: Box, mask: Any, *pieces: Any) -> tuple[Any, Any]:
        """Return the scaled scores of a window and their guided log means, (1, h, w, K)."""
        assert self.palette is not None
        given = self.given(window, mask, *pieces)
        scores = self.weights.scaled(given.scores, self.stride)
        hidden = None if mask is None else mask[None]
        return scores, guided_log_mean(scores, given.image, hidden, self.palette.whole.variance)

    def given(self, window: Box, mask: Any, logits: Any, *image: Any) -> Given:
        """Return the scores and the scaled colours of a window."""
        if mask is not None:  # scores of masked pixels may be invalid
            logits = np.where(mask[..., None], 1 / self.shape[2], logits)
        scores = read(None, logits, "hwk", self.scores).scores
        pixels = None if self.palette is None else self.palette.scaled(image[0], mask)
        return Given(pixels, scores, window.shape, batched=False, restore=Restore())
