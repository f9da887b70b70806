"""Tiled refinement: the model of :class:`locpmap.Refiner`, built window by window."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Restore, refuse_masked
from locpmap.errors import InputError, InputTypeError, one_of, within
from locpmap.formats.atomic import PathLike
from locpmap.formats.rasters import check_same_place
from locpmap.graphs import Grid, Volume
from locpmap.inference import ErrorFields, LocPMAP
from locpmap.potentials import Potentials
from locpmap.refining.adapting import KEPT, Adaptation, adapted
from locpmap.refining.api import as_refiner
from locpmap.refining.guiding import STEPS, guided_log_mean, spheres
from locpmap.refining.labelled import by_name, mask_by_name
from locpmap.refining.model import compose, factors
from locpmap.refining.prepared import averaged, errors_of, fields_of, with_errors
from locpmap.refining.reading import AXES, SCORES, Given, read
from locpmap.refining.refiner import Refiner
from locpmap.refining.weights import Adjustment, Errors, Weights
from locpmap.scale.api import TiledResult, tiled
from locpmap.scale.model import as_window
from locpmap.scale.sources import TiffFile, as_mask, as_source, fingerprint, piece_of, read_piece
from locpmap.scale.tiling import Box, reach_of
from locpmap.scale.whole_raster import Palette, at_lattice, predicted_fractions
from locpmap.unaries import read_spacing

TILES = LocPMAP(start="perturbed", max_sweeps=32)
CORNERS = {2: 256, 3: 16}  # rows and columns, or planes and rows, read to decide between logits and probabilities


def refine_tiled(
    image: Any,
    logits: Any,
    model: Refiner | PathLike | None = None,
    *,
    scores: str = "auto",
    stride: float = 1.0,
    spacing: Any = None,
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
            With ``spacing``, (D, H, W) or (D, H, W, C).
        logits (array): Scores (H, W, K) at the size of the image; (D, H, W, K) with ``spacing``.
        model (Refiner, str or os.PathLike, default None): As in :func:`locpmap.refine`.
        scores (str, default "auto"): As in :func:`locpmap.refine`. "auto" checks the values in the first 256 rows and
            columns.
        stride (float, default 1.0): Pixels per score of the network, along an axis, before the logits were resized.
        spacing (float or tuple of float, default None): As in :func:`locpmap.refine`, for volumes.
        mask (array, default None): Booleans (H, W) or (D, H, W), True where a pixel is ignored. Pixels without data in
            TIFF files are ignored as well.
        decoder (LocPMAP): LocPMAP with blocks of bounded size, as in :func:`locpmap.infer_tiled`. The default is
            ``LocPMAP(start="perturbed", max_sweeps=32)``.
        tile (int or tuple of int, default 1024): Height and width of the tiles, or one number for both. In a volume,
            numbers of planes and rows; tiles contain whole rows.
        seed (int, default 0): Seed of the random generator.
        device (str, default "cpu"): "cpu" or "cuda", for all tiles.

    Returns:
        TiledResult: As from :func:`locpmap.infer_tiled`.

    Raises:
        InputError: If shapes do not match, or the kind of scores cannot be determined.

    Notes:
        The halo is 64 pixels wider than that of :func:`locpmap.infer_tiled` if the model uses similar pixels; in a
        volume, it is wider by up to 19 times the smallest side of a voxel. If no
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
    sides = None if spacing is None else read_spacing(spacing)
    if sides is None:
        image, logits, _ = by_name(image, logits, "hwk")
    source, pixels = as_source(logits, "logits"), None if image is None else as_source(image, "image")
    n_axes = 2 if sides is None else 3
    if len(source.shape) != n_axes + 1 or 0 in source.shape:
        volume = ", or spacing= for a volume" if len(source.shape) == 4 else ""
        raise InputError(f"logits has shape {tuple(source.shape)}, expected ({AXES[n_axes]}, K){volume}")
    size = tuple(int(n) for n in source.shape[:-1])
    if source.shape[-1] < 2:
        raise InputError("logits has one label, expected at least two")
    shape = size if pixels is None else tuple(pixels.shape)
    if shape[:n_axes] != size or len(shape) > n_axes + 1 or 0 in shape:
        raise InputError(f"image has shape {shape}, expected {size} like logits, with or without channels")
    if isinstance(pixels, TiffFile) and isinstance(source, TiffFile):
        check_same_place(pixels.place, source.place, (pixels.path, source.path))
    mask = as_mask(mask_by_name(mask), size, logits=source, image=pixels)
    refiner = as_refiner(model).suited(sides)
    learned = (refiner.weights, refiner.adjustment, float(stride), sides)
    raster = RefinedRaster(pixels, source, mask, _kind(source, mask, scores), *learned)
    sampler = raster.sampler(decoder)
    reach = reach_of(sampler, 4 if sides is None else 6, n_axes)._replace(margin=raster.margin)
    mean = raster.has_fields and decoder.probability != "votes"
    finish = partial(averaged, decoder=decoder, votes=raster.errors.votes) if mean else None
    return tiled(raster, sampler, tile, seed=seed, backend="auto", device=device, reach=reach, finish=finish)


def _kind(source: Any, mask: Any, scores: str) -> str:
    """Return "logits" or "probabilities", for "auto" by the values in the first corner of the raster."""
    if one_of("scores", scores, SCORES) != "auto":
        return scores
    side = CORNERS[len(source.shape) - 1]
    first = (slice(side), slice(side))
    corner = np.asarray(source[first])
    rows = corner.reshape(-1, corner.shape[-1]) if mask is None else corner[~np.asarray(mask[first])]
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
    spacing: tuple[float, ...] | None = None  # of a volume

    @cached_property
    def builder(self) -> RefinedWindow:
        """The builder, with the palette of the whole image if the model uses colours."""
        shape, palette = tuple(int(n) for n in self.logits.shape), None
        if self.image is not None and self._uses_colours:
            palette = Palette.of(self.image, self.mask, len(shape) - 1)
        learned = (self.weights, self.adjustment, self.stride, self.spacing)
        builder = RefinedWindow(shape, palette, self.scores, *learned)
        rule = self.weights.rule_at(self.stride)
        if palette is None or not rule.threshold:
            return builder
        if not any(self.margin):
            return builder.adapted(KEPT)

        def layers(window: Box) -> tuple[Any, Any, Any]:
            mask, *rest = map(read_piece, self._pieces(window, coloured=True))
            return *builder.layers(window, mask, *rest), mask

        chosen = at_lattice(builder.shape, self.margin, layers)
        found = adapted([chosen], *factors(self.weights, self.adjustment, self.stride), rule)
        return builder.adapted(Adaptation(*(float(one[0]) for one in found)))

    @cached_property
    def errors(self) -> Errors:
        """The learned parameters of samples."""
        errors, palette = errors_of(self.weights, self.adjustment, self.stride), self.builder.palette
        return errors if palette is None else errors._replace(votes=errors.votes * palette.whole.adaptation.strength)

    @property
    def has_fields(self) -> bool:
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
        fractions = partial(predicted_fractions, self, self.margin)
        return fields_of(self.errors, max(self.builder.shape[:-1]), fractions)

    @property
    def _learned(self) -> tuple[float, Any]:
        """The factor of the guided log mean and the pairwise weights (2, 2), both after the adjustment."""
        _, _, guided, pairwise = self.weights.at(self.stride)
        strength = self.adjustment.strength
        return strength * guided, strength * pairwise + [0.0, self.adjustment.smoothing]

    @property
    def coupled(self) -> bool:
        return bool((self._learned[1] != 0).any())

    @property
    def _uses_colours(self) -> bool:
        guided, pairwise = self._learned
        return guided > 0 or bool((pairwise[:, 1] != 0).any()) or self.weights.rule_at(self.stride).threshold > 0

    @property
    def margin(self) -> tuple[int, int]:
        """Largest distances of similar pixels along the first two axes, 0 if the model does not use them."""
        if self._learned[0] == 0 or self.image is None:
            return 0, 0
        rows, columns, *_ = np.abs(STEPS if self.spacing is None else spheres(self.spacing)).max(axis=0).tolist()
        return rows, columns

    def pieces(self, window: Box) -> list[Any]:
        """Return the mask, the scores, and the image if the model uses colours."""
        return self._pieces(window, self.builder.palette is not None)

    def _pieces(self, window: Box, coloured: bool) -> list[Any]:
        mask = None if self.mask is None else piece_of(self.mask, window.slices)
        image = [piece_of(self.image, window.slices)] if coloured else []
        return [mask, piece_of(self.logits, window.slices), *image]

    def example(self, unread: float | None) -> Potentials:
        """Return a model of four pixels; its weights are 0, since a refiner's weights are never negative."""
        *size, n_labels = (int(n) for n in self.logits.shape)
        unary = np.zeros((*(2 for _ in size), n_labels), np.float32)
        return as_window((Potentials.grid if len(size) == 2 else Potentials.volume)(unary, 0.0), *size)

    def identity(self) -> dict[str, Any]:
        """Return the shape, fingerprints of sources and weights, and the options."""
        return {
            "shape": list(self.builder.shape),
            "logits": fingerprint(self.logits),
            "image": None if self.image is None else fingerprint(self.image),
            "mask": None if self.mask is None else fingerprint(self.mask),
            "refining": {**asdict(self.adjustment), "stride": self.stride, "scores": self.scores},
            "model": self.weights.identity(self.adjustment),
            "spacing": self.spacing,
        }


@dataclass(frozen=True, eq=False)
class RefinedWindow:
    """The builder of a refined raster: potentials of a window from scores and colours."""

    shape: tuple[int, ...]
    palette: Palette | None
    scores: str
    weights: Weights
    adjustment: Adjustment
    stride: float
    spacing: tuple[float, ...] | None
    dtype: ClassVar[Any] = np.dtype(np.float32)  # refining works in single precision

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """Build the potentials from the scores and, if there is a palette, the image."""
        given = self.given(window, mask, *pieces)
        whole = None if self.palette is None else self.palette.whole
        made = compose(given, self.weights, self.adjustment, mask=mask, stride=self.stride, whole=whole).potentials
        if self.spacing is None:
            height, width, _ = self.shape
            return replace(made, structure=Grid(*window.shape, 4, window.top, window.left, width, height))
        depth, height, width, _ = self.shape
        place = (window.top, window.left, 0, height, width, depth)
        return replace(made, structure=Volume(*window.shape, width, 6, *place, spacing=self.spacing))

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
        return scores, guided_log_mean(scores, given.image, hidden, self.palette.whole.variance, self.spacing)

    def given(self, window: Box, mask: Any, logits: Any, *image: Any) -> Given:
        """Return the scores and the scaled colours of a window."""
        layout = "hwk" if self.spacing is None else "dhwk"
        scores = read(None, logits, layout, self.scores, self.spacing, mask).scores
        pixels = None if self.palette is None else self.palette.scaled(image[0], mask)
        return Given(pixels, scores, logits.shape[:-1], batched=False, restore=Restore(), spacing=self.spacing)
