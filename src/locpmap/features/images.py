"""Features of greyscale, colour and multi-channel images and volumes."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array, copy_if_small, frozen, to_numpy
from locpmap.errors import InputError, InputTypeError, one_of
from locpmap.features.features import CONSTANT, Features, check_finite
from locpmap.graphs import Box, box_of, ends_of
from locpmap.unaries import read_spacing

UNARY = ("intensity", "position")
PAIRWISE = (CONSTANT, "ends", "difference", "contrast")
MAX_INTENSITY = {np.dtype(np.bool_): 1, np.dtype(np.uint8): 2**8 - 1, np.dtype(np.uint16): 2**16 - 1}


@dataclass(frozen=True)
class ImageFeatures:
    """Conversion of images to :class:`Features` on a grid or, with ``spacing=``, of volumes to those on a volume.

    With ``x_i`` the C intensities of pixel i, and an edge from pixel i to pixel j, the features are:

    ============  ========================================================  ======
    name          value                                                     number
    ============  ========================================================  ======
    intensity     ``x_i``                                                   C
    position      row and column, from -1 to 1 (0 on an axis of length 1);  2 or 3
                  in a volume plane, row and column
    constant      1                                                         1
    ends          ``x_i``, then ``x_j``                                     2C
    difference    ``|x_i - x_j|`` per channel                               C
    contrast      ``exp(-‖x_i - x_j‖² / (2 mean ‖x_i - x_j‖²))``            1
    ============  ========================================================  ======

    The mean in "contrast" is over the edges of one image.  In a constant image the contrast is 1.

    Only ``spacing=`` makes a volume.  Arrays then have an axis D before H and W.  The pairwise features of edges with
    step (z, y, x) are multiplied by ``min(spacing) / sqrt((z·dz)² + (y·dy)² + (x·dx)²)``.

    Args:
        unary (tuple of str, default ("intensity",)): Any of "intensity" and "position".
        pairwise (tuple of str, default ("constant", "difference")): One or more of "constant", "ends", "difference" and
            "contrast".
        connectivity (int, default None): 4 (the default) or 8 neighbours; in volumes 6 (the default) or 26.
        channels (int, default None): None for images (H, W) and batches (N, H, W); C for (H, W, C) and (N, H, W, C).
            :meth:`CRF.fit` replaces it by the channels of the first labelled image.
        spacing (float or tuple of float, default None): Sides (dz, dy, dx) of a voxel, or one number for cubes, of all
            volumes.  None for images.

    Notes:
        Images of booleans, uint8 and uint16 are scaled to 0..1 in single precision.  Floats are not scaled.  The
        features take ``D + F · E/S`` times the memory of one channel in that precision, where E/S is half the
        connectivity.  Computing them takes one channel more.  "constant" alone takes no memory.

    Example:
        >>> features = lp.ImageFeatures()(np.array([[0, 255], [51, 51]], np.uint8))
        >>> features
        <Features: one input on a grid 2×2, 1 unary and 2 pairwise, float32>
        >>> features.pairwise_names
        ('constant', 'difference')
        >>> features.pairwise[0, :, 1]  # horizontal edges, then vertical ones
        array([1. , 0. , 0.2, 0.8], dtype=float32)
        >>> lp.ImageFeatures(spacing=(2.0, 1.0, 1.0))(np.zeros((2, 3, 4)))
        <Features: one input on a volume 2×3×4, 1 unary and 2 pairwise, float64>

    See Also:
        :class:`Features`, :class:`CRF`
    """

    unary: tuple[str, ...] = ("intensity",)
    pairwise: tuple[str, ...] = (CONSTANT, "difference")
    connectivity: int | None = None
    channels: int | None = None
    spacing: float | tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "unary", _parse_choice(self.unary, "unary", UNARY))
        object.__setattr__(self, "pairwise", _parse_choice(self.pairwise, "pairwise", PAIRWISE))
        if not self.pairwise:
            raise InputError(f"pairwise is empty, expected at least one of {', '.join(PAIRWISE)}")
        few, many = (4, 8) if self.spacing is None else (6, 26)
        if self.connectivity is None:
            object.__setattr__(self, "connectivity", few)
        if type(self.connectivity) is not int or self.connectivity not in (few, many):
            where = "" if self.spacing is None else " in volumes (with spacing)"
            raise InputError(f"connectivity is {self.connectivity!r}, expected {few} or {many}{where}")
        if self.spacing is not None:
            object.__setattr__(self, "spacing", read_spacing(self.spacing))
        if self.channels is not None and (type(self.channels) is not int or self.channels < 1):
            raise InputError(f"channels is {self.channels!r}, expected None or a whole number of at least 1")

    @property
    def unary_names(self) -> tuple[str, ...]:
        """Names of the D features per site."""
        axes = ("row", "column") if self.spacing is None else ("plane", "row", "column")
        parts = {"intensity": self._per_channel("intensity"), "position": axes}
        return tuple(name for choice in self.unary for name in parts[choice])

    @property
    def pairwise_names(self) -> tuple[str, ...]:
        """Names of the F features per edge."""
        parts = {
            CONSTANT: (CONSTANT,),
            "ends": self._per_channel("first end") + self._per_channel("second end"),
            "difference": self._per_channel("difference"),
            "contrast": ("contrast",),
        }
        return tuple(name for choice in self.pairwise for name in parts[choice])

    def __call__(self, image: Any) -> Features:
        """Compute the features of an image or a batch, O(N · S · (D + F)).

        Args:
            image (array): Image of the shape that ``channels`` and ``spacing`` require, of dtype bool, uint8, uint16 or
                float.

        Returns:
            Features: The features on a grid or a volume.
        """
        pixels, batched = self._parse(image)
        box = box_of(pixels.shape[1:-1], self.connectivity)
        unary = self._unary(pixels)
        pairwise = self._pairwise(pixels, box)
        check_finite(pairwise, "the pairwise features of the image")  # differences of huge numbers overflow
        found = Features(frozen(unary), frozen(pairwise), box, batched, self.unary_names, self.pairwise_names)
        return found if self.spacing is None else found.spaced(self.spacing)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as lists, strings and numbers, for a model file.

        Returns:
            dict: Options by name.
        """
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        if self.spacing is None:  # as in files of earlier versions
            del values["spacing"]
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Create an instance from the output of :meth:`to_dict`.

        Args:
            values (dict): Options by name.

        Returns:
            ImageFeatures: The equivalent instance.

        Example:
            >>> lp.ImageFeatures.from_dict(lp.ImageFeatures(channels=3).to_dict()) == lp.ImageFeatures(channels=3)
            True
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or set(values) | {"spacing"} != names:
            came = sorted(map(str, values)) if isinstance(values, dict) else type(values).__name__
            raise InputError(f"the image features are described by {came}, expected {sorted(names)}")
        return cls(**values)

    def _per_channel(self, name: str) -> tuple[str, ...]:
        return (name,) if self.channels is None else tuple(f"{name} {c}" for c in range(self.channels))

    def _parse(self, image: Any) -> tuple[Array, bool]:
        """Return pixels (N, [D,] H, W, C) in single or double precision, and whether there was a batch axis."""
        array = to_numpy(image, "image")
        tail = () if self.channels is None else (self.channels,)
        axes = ("H", "W") if self.spacing is None else ("D", "H", "W")
        batched = array.ndim == 1 + len(axes) + len(tail)
        if (array.ndim != len(axes) + len(tail) and not batched) or array.shape[array.ndim - len(tail) :] != tail:
            one = ", ".join([*axes, *map(str, tail)])
            volume = "; volumes need spacing=" if len(axes) == 2 and array.ndim == 4 + len(tail) else ""
            raise InputError(
                f"image has shape {array.shape}, expected ({one}) or (N, {one}) with channels={self.channels}{volume}"
            )
        if 0 in array.shape:
            raise InputError(f"image is empty: it has shape {array.shape}, expected at least one pixel")
        pixels = _to_intensity(array)
        return pixels.reshape(-1, *array.shape[batched : batched + len(axes)], self.channels or 1), batched

    def _unary(self, pixels: Array) -> Array:
        """Return the unary features (N, S, D): the pixels themselves if they are the only feature."""
        n_images, *shape, n_channels = pixels.shape
        if self.unary == ("intensity",):
            return pixels.reshape(n_images, -1, n_channels)
        places = np.broadcast_arrays(*np.ix_(*map(_from_minus_one_to_one, shape)))
        position = np.broadcast_to(np.stack(places, -1).astype(pixels.dtype), (n_images, *shape, len(shape)))
        parts = [pixels if choice == "intensity" else position for choice in self.unary]
        found = np.concatenate([pixels[..., :0], *parts], axis=-1)  # also without a choice
        return found.reshape(n_images, math.prod(shape), found.shape[-1])

    def _pairwise(self, pixels: Array, box: Box) -> Array:
        """Return the pairwise features (N, E, F), computed step by step; (1, 1, 1) for "constant" alone."""
        if self.pairwise == (CONSTANT,):
            return np.ones((1, 1, 1), pixels.dtype)
        n_images, n_channels = len(pixels), pixels.shape[-1]
        sides = list(_sides(pixels, box))
        out = np.empty((n_images, sum(box.direction_sizes), len(self.pairwise_names)), pixels.dtype)
        k = 0
        for choice in self.pairwise:
            width = {"ends": 2 * n_channels, "difference": n_channels}.get(choice, 1)
            columns = out[..., k : k + width]
            k += width
            if choice == CONSTANT:
                columns[...] = 1
                continue
            begin = 0
            for first, second in sides:
                stop = begin + math.prod(first.shape[1:-1])
                place = columns[:, begin:stop].reshape(*first.shape[:-1], width)  # splitting an axis gives a view
                _WRITE[choice](first, second, place)
                begin = stop
            if choice == "contrast":
                _to_contrast(columns[..., 0])
        return out


def _write_ends(first: Array, second: Array, place: Array) -> None:
    n_channels = first.shape[-1]
    place[..., :n_channels] = first
    place[..., n_channels:] = second


def _write_difference(first: Array, second: Array, place: Array) -> None:
    with np.errstate(over="ignore"):  # infinite values raise an error later
        np.subtract(first, second, out=place)
    np.abs(place, out=place)


def _write_distance(first: Array, second: Array, place: Array) -> None:
    """Write ``‖x_i − x_j‖`` by hypot, since squares of large or small numbers would overflow or vanish."""
    place[...] = 0
    with np.errstate(over="ignore"):
        for c in range(first.shape[-1]):
            np.hypot(place[..., 0], first[..., c] - second[..., c], out=place[..., 0])


_WRITE = {"ends": _write_ends, "difference": _write_difference, "contrast": _write_distance}


def _to_contrast(distance: Array) -> None:
    """Convert distances (N, E) to contrasts in place."""
    # Image by image, so that rounding does not depend on the batch.
    for row in distance:
        largest = row.max(initial=0)
        if 0 < largest < np.inf:  # division keeps squares in range and cancels out
            row /= largest
            np.square(row, out=row)
            row *= -0.5 / row.mean(dtype=np.float64)
        np.exp(row, out=row)


def _sides(pixels: Array, box: Box) -> Iterator[tuple[Array, Array]]:
    """Yield the pixels at the first and second ends of the edges, by direction, in the order of :meth:`Box.edges`."""
    for step in box.steps:
        first, second = ends_of(step, *box.shape)
        yield pixels[:, *first], pixels[:, *second]


def _to_intensity(array: Array) -> Array:
    """Return contiguous, finite intensities, with integers divided by the maximum of their dtype."""
    dtype = array.dtype.newbyteorder("=")  # image files may have swapped byte order
    if dtype in MAX_INTENSITY:
        return np.divide(array, np.float32(MAX_INTENSITY[dtype]), dtype=np.float32)
    if array.dtype.kind != "f":
        raise InputTypeError(
            f"image has dtype {array.dtype}, whose maximum is unknown: expected bool, uint8, uint16 or floats"
        )
    single = array.dtype.itemsize <= 4
    pixels = np.ascontiguousarray(array, np.float32 if single else np.float64)
    check_finite(pixels, "image")
    return copy_if_small(pixels) if pixels is array else pixels


def _from_minus_one_to_one(n: int) -> Array:
    return np.linspace(-1, 1, n) if n > 1 else np.zeros(1)


def _parse_choice(choice: Any, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(choice, tuple | list):
        raise InputTypeError(f"{name} is {choice!r}, expected a tuple of names, of {', '.join(known)}")
    for item in choice:
        one_of(f"{name} feature", item, known)
    if len(set(choice)) < len(choice):
        raise InputError(f"{name} is {choice!r}, expected each feature once")
    return tuple(choice)
