"""From images and scores as people have them to checked arrays of one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Restore, cast, is_tensor, namespace, on_gpu, to_float, to_numpy
from locpmap.errors import InputError, unknown
from locpmap.refining.adapters import adapt

COLOURS = (1, 3, 4)  # channels of usual images: one row of them is no batch of grey ones
LAYOUTS = ("auto", "hwk", "khw")
SCORES = ("auto", "logits", "probabilities")
LEAST = 1e-6  # probabilities below it count as this much
NEAR_ONE = 0.01  # how far from 1 rounded probabilities may sum up
FEW = 4  # without an image, labels are the axis that is so many times shorter than the others


@dataclass(frozen=True, eq=False)
class Given:
    """An image and scores, checked."""

    image: Any  # None or (N, C, H, W) in single precision, from -1 to 1
    scores: Any  # (N, h, w, K) in single precision; h and w may be smaller than H and W
    height: int  # of the image, or of the scores where there is none
    width: int
    batched: bool
    restore: Restore

    @property
    def stride(self) -> float:
        """Pixels of the image to one score, along an axis: the geometric mean of the two."""
        return float(np.sqrt(self.height * self.width / (self.scores.shape[1] * self.scores.shape[2])))


def read(image: Any, logits: Any, layout: str = "auto", scores: str = "auto") -> Given:
    """The two in one form.

    Args:
        image: None, (H, W), (H, W, C) or, as tensors are, (C, H, W); with a batch axis where the logits have one.
        logits: (H, W, K), (K, H, W), a batch of them, or what :func:`locpmap.refining.adapters.adapt` takes.
        layout: "hwk", "khw", or "auto": the order in which the sizes of the two fit one another.
        scores: "logits", "probabilities", or "auto": probabilities, if they look like that.
    """
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)
    if scores not in SCORES:
        raise unknown("scores", scores, SCORES)
    found, layout = adapt(logits, layout)
    values = to_float(found, "logits")
    if values.ndim not in (3, 4):
        raise InputError(
            f"logits has shape {tuple(values.shape)}, expected (H, W, K) or (K, H, W), with or without a batch axis"
        )
    if 0 in values.shape:
        raise InputError(f"logits is empty: it has shape {tuple(values.shape)}, expected at least one of each")
    values = cast(values, "float32")
    pixels = None
    if image is not None:  # where the scores are
        pixels = to_float(image, "image", values) if on_gpu(values) else to_float(to_numpy(image, "image"), "image")
    batched = values.ndim == 4
    if batched and pixels is not None and _is_single(pixels, values):
        values, batched = values[0], False
    pixels = None if pixels is None else _with_channels(pixels, batched)
    layout, channels_first = _orders(values, pixels, layout, batched, is_tensor(image))
    values = values if batched else values[None]
    values = values if layout == "hwk" else namespace(values).moveaxis(values, 1, -1)
    if pixels is not None:
        pixels = pixels if batched else pixels[None]
        pixels = pixels if channels_first else namespace(pixels).moveaxis(pixels, -1, 1)
        if len(pixels) != len(values):
            raise InputError(f"image holds {len(pixels)} images, expected {len(values)}, as many as logits")
        pixels = _intensities(pixels)
    if values.shape[-1] < 2:
        raise InputError(
            "logits has one label, expected at least two: of a network with one output x per pixel, stack 0 and x"
        )
    height, width = values.shape[1:3] if pixels is None else pixels.shape[2:]
    values = _as_logits(values, scores)
    return Given(pixels, values, int(height), int(width), batched, Restore.like(found))


def _is_single(pixels: Any, values: Any) -> bool:
    """Whether scores with a batch axis of one belong to an image without: networks have no other outputs."""
    coloured = pixels.ndim == 3 and (len(pixels) != 1 or pixels.shape[-1] in COLOURS)
    return len(values) == 1 and (pixels.ndim == 2 or coloured)


def _with_channels(pixels: Any, batched: bool) -> Any:
    """(H, W, 1) for (H, W)."""
    if 0 in pixels.shape:
        raise InputError(f"image is empty: it has shape {tuple(pixels.shape)}, expected at least one pixel")
    if pixels.ndim not in (2 + batched, 3 + batched):
        one = "(N, H, W) or (N, H, W, C)" if batched else "(H, W) or (H, W, C)"
        raise InputError(f"image has shape {tuple(pixels.shape)}, expected {one} beside such logits")
    return pixels if pixels.ndim == 3 + batched else pixels[..., None]


def _orders(values: Any, pixels: Any, layout: str, batched: bool, tensor: bool) -> tuple[str, bool]:
    """The layout of the scores, and whether the image has its channels first."""
    shape = tuple(int(n) for n in values.shape[batched:])
    sizes = {"hwk": shape[:2], "khw": shape[1:]}
    asked = [layout] if layout != "auto" else ["hwk", "khw"]
    if pixels is None:
        return (layout if layout != "auto" else _layout_alone(values, shape)), False
    form = tuple(int(n) for n in pixels.shape[batched:])
    grey = form[2] == 1 and not tensor
    for channels_first in [False] if grey else [tensor, not tensor]:
        size = form[1:] if channels_first else form[:2]
        fitting = [name for name in asked if _fits(sizes[name], size, proportional=layout == "auto")]
        if len(fitting) == 2:
            raise InputError(
                f"logits has shape {tuple(values.shape)}, which may be (H, W, K) or (K, H, W): say layout="
            )
        if fitting:
            return fitting[0], channels_first
    size = form[1:] if tensor and not grey else form[:2]
    raise InputError(
        f"logits has shape {tuple(values.shape)}, expected ({size[0]}, {size[1]}, K) or (K, {size[0]}, {size[1]}) like"
        " the image, or as many times smaller in both directions"
    )


def _fits(small: tuple[int, ...], large: tuple[int, ...], *, proportional: bool) -> bool:
    """Whether scores of one size may belong to an image of another: not larger, and of its proportions."""
    (h, w), (height, width) = small, large
    if h > height or w > width:
        return False
    return not proportional or (abs(h * width - w * height) <= max(height, width))  # rounded or padded by one


def _layout_alone(values: Any, shape: tuple[int, ...]) -> str:
    """The layout without an image: labels are far fewer than rows and columns."""
    first, middle, last = shape
    if FEW * last <= min(first, middle):
        return "hwk"
    if FEW * first <= min(middle, last):
        return "khw"
    raise InputError(
        f"logits has shape {tuple(values.shape)} without an image, which may be (H, W, K) or (K, H, W): say layout="
    )


def _intensities(pixels: Any) -> Any:
    """Images (N, C, H, W) in single precision from -1 to 1, so that no square overflows; refuses what is not finite.

    Only differences count, so what the pixels of a channel have in common is taken off before it costs them digits.
    """
    xp = namespace(pixels)
    low, high = xp.amin(pixels, (2, 3)), xp.amax(pixels, (2, 3))  # (N, C)
    if not (xp.isfinite(low) & xp.isfinite(high)).all():
        raise InputError("image contains a number that is not finite, expected finite numbers")
    reach = xp.amax(high / 2 - low / 2, 1)  # of each image: channels keep their proportions
    scaled = (pixels - (low / 2 + high / 2)[:, :, None, None]) / xp.where(reach > 0, reach, 1)[:, None, None, None]
    return xp.ascontiguousarray(scaled, np.float32) if xp is np else scaled.float().contiguous()


def _as_logits(values: Any, scores: str) -> Any:
    """Log-probabilities where probabilities came."""
    xp = namespace(values)
    low, high = float(values.min()), float(values.max())
    if high == np.inf or np.isnan(low):
        raise InputError("logits contains nan or inf, expected finite numbers (or -inf for labels that cannot be)")
    sums = None
    if scores != "logits" and low >= 0 and high <= 1 + NEAR_ONE:
        sums = values.sum(-1)
    fits = sums is not None and float(abs(sums - 1).max()) <= NEAR_ONE
    if scores == "probabilities" and not fits:
        raise InputError("logits holds no probabilities, expected numbers from 0 to 1 that sum up to 1 over the labels")
    if not fits:
        return values
    return xp.log(values.clip(LEAST, None))


def read_mask(mask: Any, given: Given) -> Any:
    """Booleans (N | 1, H, W) or None."""
    if mask is None:
        return None
    array = to_numpy(mask, "mask")
    if array.dtype != np.bool_:
        raise InputError(f"mask has dtype {array.dtype}, expected booleans (True where a pixel is ignored)")
    shape = (given.height, given.width)
    if array.shape not in (shape, (len(given.scores), *shape)):
        raise InputError(f"mask has shape {array.shape}, expected {shape} like the image, with or without a batch axis")
    return array
