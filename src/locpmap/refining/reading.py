"""Readers that check images and scores of any layout and convert them to one layout."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from warnings import warn

import numpy as np

from locpmap.arrays import Restore, cast, extremes, is_tensor, namespace, on_gpu, place_like, to_float, to_numpy
from locpmap.errors import InputError, InputTypeError, one_of
from locpmap.refining.labelled import by_name, mask_by_name, with_spacing
from locpmap.unaries import read_spacing

COLOURS = (1, 3, 4)  # channels of grey, RGB and RGBA images
LAYOUTS = {2: ("auto", "hwk", "khw"), 3: ("auto", "dhwk", "kdhw")}  # labels last and first, by number of spatial axes
AXES = {2: "H, W", 3: "D, H, W"}
SCORES = ("auto", "logits", "probabilities")
LARGEST = 1e37  # of logits, which are scaled in single precision
LEAST = 1e-6  # lower bound of probabilities before the logarithm
NEAR_ONE = 0.01  # tolerance for the sum of rounded probabilities
READING = ("layout", "scores", "stride", "spacing", "mask")  # options of `Refiner.prepare`
FEW = 4  # without an image, the label axis must be shorter than the other axes by this factor
NAMES = ("logits", "out")  # keys of Hugging Face and of torchvision
QUERIES = ("class_queries_logits", "masks_queries_logits")  # keys of Hugging Face's Mask2Former, MaskFormer, OneFormer
LEAST_MASK = -60.0  # lower bound of mask logits, below which the sigmoid underflows


@dataclass(frozen=True, eq=False)
class Given:
    """A checked image or volume, or a batch of them, with its scores."""

    image: Any  # None or (N, C, H, W) in single precision, from -1 to 1; (N, C, D, H, W) for volumes
    scores: Any  # (N, h, w, K) in single precision, not larger than the image; (N, d, h, w, K) for volumes
    shape: tuple[int, ...]  # of the image, or of the scores if there is no image
    batched: bool
    restore: Restore
    spacing: tuple[float, ...] | None = None  # of the voxels of a volume; None for an image
    has_unit: bool = True  # False if the spacing is 1 because none was given

    @property
    def stride(self) -> float:
        """Pixels per score along an axis, as the geometric mean over the axes."""
        ratio = math.prod(self.shape) / math.prod(self.scores.shape[1:-1])
        return float(np.sqrt(ratio)) if self.spacing is None else float(np.cbrt(ratio))


def read(
    image: Any, logits: Any, layout: str = "auto", scores: str = "auto", spacing: Any = None, mask: Any = None
) -> Given:
    """Check an image or a volume and its scores, and convert both to one layout.

    The layout of the image depends on its own shape only. Channels are last in NumPy arrays and first in tensors,
    unless only the opposite axis has 1, 3 or 4 entries. The scores must have the image's size, or that size divided by
    a stride.

    Args:
        image: None, (H, W), (H, W, C) or a tensor (C, H, W); with a batch axis if the logits have one.
        logits: (H, W, K), (K, H, W), a batch of them, or a network's output for
            :func:`locpmap.refining.reading.adapt`.
        layout: "hwk", "khw", or "auto" for the layout that matches the size of the image.
        scores: "logits", "probabilities", or "auto": probabilities if the values lie in [0, 1] and sum to 1.
        spacing: None for images; the sides of a voxel for volumes, whose arrays have an axis D before H and W. Images
            of nibabel and MONAI have their own, and the layout of a volume stands for 1.
        mask: None, or booleans of the image's shape, True where the values of a pixel are ignored.
    """
    one_of("scores", scores, SCORES)
    image, logits, spacing = with_spacing(image, logits, spacing)
    n_axes = 3 if spacing is not None or layout in LAYOUTS[3][1:] else 2
    sides = None if n_axes == 2 else read_spacing(1.0 if spacing is None else spacing)
    axes, (_, last, first) = AXES[n_axes], LAYOUTS[n_axes]
    layout = one_of("layout", layout, LAYOUTS[n_axes])
    if sides is None:
        image, logits, layout = by_name(image, logits, layout)
    found, layout = adapt(logits, layout, first)
    values = to_float(found, "logits")
    if values.ndim == n_axes and to_numpy(found, "logits").dtype.kind in "iub":
        raise InputError(
            f"logits has shape {tuple(values.shape)} and whole numbers like a label map, expected one score per label"
        )
    if values.ndim not in (n_axes + 1, n_axes + 2):
        volume = ", or spacing= for a volume" if values.ndim == 5 else ""
        raise InputError(
            f"logits has shape {tuple(values.shape)}, expected ({axes}, K) or (K, {axes}), with or without a batch"
            f" axis{volume}"
        )
    if 0 in values.shape:
        raise InputError(f"logits is empty: it has shape {tuple(values.shape)}, expected at least one of each")
    values = cast(values, "float32")
    pixels = None
    if image is not None:  # moved to the device of the scores
        pixels = to_float(image, "image", values) if on_gpu(values) else to_float(to_numpy(image, "image"), "image")
    batched = values.ndim == n_axes + 2
    if batched and pixels is not None and _is_single(pixels, values, n_axes):
        values, batched = values[0], False
    if pixels is None:
        layout = layout if layout != "auto" else _layout_alone(values, tuple(values.shape[batched:]))
    else:
        pixels = _channels_first(pixels, batched, is_tensor(image), n_axes)
        if batched and len(pixels) != len(values):
            volume = "; for one volume, specify spacing=" if n_axes == 2 else ""
            raise InputError(f"image holds {len(pixels)} images, expected {len(values)} like logits{volume}")
        layout = _layout(tuple(values.shape[batched:]), tuple(pixels.shape[1:]), layout)
    values = values if batched else values[None]
    values = values if layout == last else namespace(values).moveaxis(values, 1, -1)
    if values.shape[-1] < 2:
        raise InputError(
            "logits has one label, expected at least two: for a network with one output x per pixel, stack 0 and x"
        )
    shape = tuple(map(int, values.shape[1:-1] if pixels is None else pixels.shape[2:]))
    given = Given(pixels, values, shape, batched, Restore.like(found), sides, spacing is not None)
    pixels, values = _without_masked(given, read_mask(mask, given))
    pixels = None if pixels is None else _intensities(pixels)
    return replace(given, image=pixels, scores=_as_logits(values, scores))


def _without_masked(given: Given, masked: Any) -> tuple[Any, Any]:
    """Return the image and the scores with valid values at masked pixels; coarse scores are not changed."""
    pixels, values = given.image, given.scores
    if masked is None:
        return pixels, values
    if values.shape[1:-1] == given.shape:
        hidden = place_like(values, masked)[..., None]
        values = namespace(values).where(hidden, 1 / values.shape[-1], values)
    if pixels is not None:
        xp, hidden = namespace(pixels), place_like(pixels, masked.reshape(-1, 1, *given.shape))
        pixels = xp.where(hidden & ~xp.isfinite(pixels), 0, pixels)
    return pixels, values


def _is_single(pixels: Any, values: Any, n_axes: int) -> bool:
    """Return whether the scores have a batch axis of length 1 and the image has none, as networks return a batch."""
    coloured = pixels.ndim == n_axes + 1 and (len(pixels) != 1 or pixels.shape[-1] in COLOURS)
    return len(values) == 1 and (pixels.ndim == n_axes or coloured)


def _channels_first(pixels: Any, batched: bool, tensor: bool, n_axes: int) -> Any:
    """Return images as (N, C, H, W), whatever the shape of the scores; volumes as (N, C, D, H, W)."""
    if 0 in pixels.shape:
        raise InputError(f"image is empty: it has shape {tuple(pixels.shape)}, expected at least one pixel")
    if pixels.ndim not in (n_axes + batched, n_axes + 1 + batched):
        axes = f"N, {AXES[n_axes]}" if batched else AXES[n_axes]
        raise InputError(f"image has shape {tuple(pixels.shape)}, expected ({axes}) or ({axes}, C) for these logits")
    pixels = pixels if batched else pixels[None]
    if pixels.ndim == n_axes + 1:
        return pixels[:, None]
    in_front = channels_in_front(pixels.shape[1:], tensor)
    return pixels if in_front else namespace(pixels).moveaxis(pixels, -1, 1)


def channels_in_front(shape: Sequence[int], tensor: bool = False) -> bool:
    """Return whether the channels of an image of three axes, or of a volume of four, come first.

    Tensors have their channels first and arrays last, unless only the opposite axis has 1, 3 or 4 entries.

    >>> [channels_in_front(shape) for shape in ((480, 640, 3), (3, 480, 640), (480, 640, 9))]
    [False, True, False]
    """
    first, last = shape[0] in COLOURS, shape[-1] in COLOURS
    return tensor if first == last else first


def _layout(shape: tuple[int, ...], image: tuple[int, ...], layout: str) -> str:
    """Return the layout in which scores of the given shape match an image (C, H, W) or (C, D, H, W)."""
    n_axes, (channels, *size) = len(shape) - 1, image
    axes, (_, last, first) = AXES[n_axes], LAYOUTS[n_axes]
    sizes = {last: shape[:-1], first: shape[1:]}
    candidates = [layout] if layout != "auto" else list(sizes)
    fitting = [name for name in candidates if _fits(sizes[name], tuple(size))]
    if len(fitting) == 2:
        raise InputError(f"logits has shape {shape}, which may be ({axes}, K) or (K, {axes}): specify layout=")
    if not fitting:
        sides = ", ".join(map(str, size))
        expected = {last: f"({sides}, K)", first: f"(K, {sides})"}
        pixels, both = ("pixels", "both") if n_axes == 2 else ("voxels", "all")
        raise InputError(
            f"logits has shape {shape} and the image has {'×'.join(map(str, size))} {pixels} with {channels} channels,"
            f" expected {' or '.join(expected[name] for name in candidates)} like the image, or {both} sides smaller by"
            f" one stride{_guess([sizes[name] for name in candidates], tuple(size))}"
        )
    return fitting[0]


def _guess(sizes: Sequence[tuple[int, ...]], image: tuple[int, ...]) -> str:
    """Return a question about what may be wrong with sizes of scores that do not match an image."""
    if any(_fits(size[::-1], image) for size in sizes):
        return " (are height and width swapped?)"
    return " (are image and logits swapped?)" if any(_fits(image, size) for size in sizes) else ""


def _fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Return whether scores of one size match an image of another size: not larger, and with the same aspect ratio."""
    # The tolerance allows for sizes that were rounded, or padded by one pixel.
    return all(h <= height for h, height in zip(small, large, strict=True)) and all(
        abs(h * width - w * height) <= max(height, width)
        for (h, height), (w, width) in itertools.combinations(zip(small, large, strict=True), 2)
    )


def _layout_alone(values: Any, shape: tuple[int, ...]) -> str:
    """Return the layout of scores without an image, by the axis that is at least 4 times shorter than the others."""
    axes, (_, last, first) = AXES[len(shape) - 1], LAYOUTS[len(shape) - 1]
    if FEW * shape[-1] <= min(shape[:-1]):
        return last
    if FEW * shape[0] <= min(shape[1:]):
        return first
    raise InputError(
        f"logits has shape {tuple(values.shape)} without an image, which may be ({axes}, K) or (K, {axes}): specify"
        " layout="
    )


def _intensities(pixels: Any) -> Any:
    """Scale images (N, C, ..) to [-1, 1] in single precision, so that squares do not overflow.

    The model uses colour differences only. Each channel is centred before the conversion, so that a large common
    offset does not reduce the precision.
    """
    xp = namespace(pixels)
    pixels = np.ascontiguousarray(pixels) if xp is np else pixels  # reductions of other layouts take much longer
    axes = tuple(range(2, pixels.ndim))
    ends = Restore()(xp.stack([xp.amin(pixels, axes), xp.amax(pixels, axes)]))  # (2, N, C)
    if not np.isfinite(ends).all():
        raise InputError("image contains a number that is not finite, expected finite numbers")
    low, high = ends / 2
    reach = np.max(high - low, 1)  # one factor per image, which preserves the ratio of the channels
    scale = np.broadcast_to(np.where(reach > 0, reach, 1)[:, None], low.shape)
    centre, scale = place_like(pixels, np.stack([low + high, scale]).reshape(2, *low.shape, *[1] * len(axes)))
    scaled = (pixels - centre) / scale
    if xp is np:
        return np.ascontiguousarray(scaled, np.float32)
    return scaled.to(xp.float32, memory_format=xp.contiguous_format)


def _as_logits(values: Any, scores: str) -> Any:
    """Return logits unchanged, and probabilities as their logarithms."""
    xp = namespace(values)
    ((low, high),) = extremes(values)
    if np.isnan(low) or high > LARGEST:
        found = "nan, inf or a number above 1e37"
        raise InputError(f"logits contains {found}, expected finite numbers (or -inf for forbidden labels)")
    small = low >= 0 and high <= 1 + NEAR_ONE
    fits = small and float(abs(values.sum(-1) - 1).max()) <= NEAR_ONE
    varies = high > low  # masked windows of a raster are constant
    if scores == "logits":
        if fits and varies:
            warn('logits sums to 1 over the labels like probabilities: pass scores="probabilities"', stacklevel=2)
        return values
    if scores == "probabilities" and not fits:
        raise InputError(
            "logits does not hold probabilities, expected numbers from 0 to 1 that sum to 1 over the labels"
        )
    if not fits:
        if small and varies:
            warn(
                "logits lies in [0, 1] and does not sum to 1 over the labels, expected logits, or probabilities that"
                ' sum to 1: pass the logits of a sigmoid, or scores="logits" if these are logits',
                stacklevel=2,
            )
        return values
    return xp.log(values.clip(LEAST, None))


def read_mask(mask: Any, given: Given) -> Any:
    """Return a checked mask of the image's shape, with or without a batch axis, or None."""
    if mask is None:
        return None
    array = to_numpy(mask_by_name(mask), "mask")
    if array.dtype != np.bool_:
        raise InputError(f"mask has dtype {array.dtype}, expected booleans (True where a pixel is ignored)")
    if array.shape not in (given.shape, (len(given.scores), *given.shape)):
        raise InputError(
            f"mask has shape {array.shape}, expected {given.shape} like the image, with or without a batch axis"
        )
    return array


def options_of_prepare(method: str, reading: dict[str, Any], other: str = "") -> dict[str, Any]:
    """Return the options of `Refiner.prepare`; raise an error that names the method the user called."""
    for name in reading:
        if name not in READING:
            expected = f"{', '.join(READING[:-1])} or {READING[-1]}"
            raise InputTypeError(f"Refiner.{method} got the option {name!r}, expected {expected}{other}")
    return reading


def adapt(logits: Any, layout: str = "auto", labels_first: str = "khw") -> tuple[Any, str]:
    """Extract the scores from a network's output, and return them with their layout.

    Supported outputs are Hugging Face's (an attribute or key "logits", (N, K, h, w)) and torchvision's (a key "out",
    (N, K, H, W)). For both, "auto" becomes the layout with labels first. The queries of Mask2Former, MaskFormer and
    similar models become logits (:func:`locpmap.refining.reading.logits_of_queries`). Other inputs are returned
    unchanged.

    >>> adapt({"out": np.zeros((1, 21, 8, 8))})[1]
    'khw'
    >>> adapt(np.zeros((8, 8, 21)))[1]
    'auto'
    """
    if isinstance(logits, Mapping):
        if all(name in logits for name in QUERIES):
            return logits_of_queries(*(logits[name] for name in QUERIES)), "khw"
        names = [name for name in NAMES if name in logits]
        if not names:
            raise InputError(
                f"logits is a dictionary with the keys {sorted(map(str, logits))}, expected 'logits' or 'out'"
            )
        found = logits[names[0]]
    else:
        found = getattr(logits, "logits", None)
    return (logits, layout) if found is None else (found, labels_first if layout == "auto" else layout)


def logits_of_queries(classes: Any, masks: Any) -> Any:
    """Return the logarithm of label probabilities (N, K, h, w) of a model that predicts masks and their classes.

    A model with Q queries predicts for each query q a mask m_q and a distribution over K labels and "no object". The
    sum ``s_k(i) = Σ_q p(k | q) · sigmoid(m_q(i))`` is used to choose labels, and does not sum to 1 over the labels.
    Suppose that pixel i belongs to query q with a probability proportional to ``sigmoid(m_q(i)) · (1 - p(no object |
    q))``, and that its label has the query's distribution without "no object". The probability of label k is then
    ``s_k(i) / Σ_j s_j(i)``.

    Args:
        classes (array or tensor): Logits (N, Q, K + 1); "no object" is last.
        masks (array or tensor): Logits (N, Q, h, w).

    >>> p = np.exp(logits_of_queries(np.log([[[0.8, 0.1, 0.1], [0.2, 0.4, 0.4]]]), np.zeros((1, 2, 1, 1))))
    >>> [round(float(one), 3) for one in p.ravel()]  # 0.8 + 0.2 and 0.1 + 0.4, divided by 1.5
    [0.667, 0.333]
    """
    given = classes
    classes, masks = (
        cast(to_float(found, name), "float32") for found, name in zip((classes, masks), QUERIES, strict=True)
    )
    if classes.ndim != 3 or masks.ndim != 4 or classes.shape[:2] != masks.shape[:2] or classes.shape[2] < 2:
        raise InputError(
            f"logits holds {QUERIES[0]} of shape {tuple(classes.shape)} and {QUERIES[1]} of shape {tuple(masks.shape)},"
            " expected (N, Q, K + 1) and (N, Q, h, w)"
        )
    xp = namespace(classes)
    weights = xp.exp(classes - xp.amax(classes, -1)[..., None])
    weights = (weights / weights.sum(-1)[..., None])[..., :-1]  # (N, Q, K)
    total = xp.einsum("nqk,nqhw->nkhw", weights, 1 / (1 + xp.exp(-masks.clip(LEAST_MASK, None))))
    tiny = np.finfo(np.float32).tiny
    return Restore.like(given)(xp.log((total / total.sum(1)[:, None].clip(tiny, None)).clip(LEAST, None)))
