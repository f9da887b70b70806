"""Arrays of other libraries with names, coordinates or a spacing (xarray, nibabel, MONAI), which are not imported."""

from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.nifti import check_same_affine, check_same_space, of_nibabel

ROWS = ("y", "row", "lat", "latitude", "northing", "height")
COLUMNS = ("x", "column", "col", "lon", "longitude", "easting", "width")
REGULAR = 0.01  # largest deviation of a coordinate from equal steps, in steps
UNIT = "map unit"  # of coordinates without the attribute "units"
EXPECTED = f"a dimension of rows ({', '.join(ROWS)}) and one of columns ({', '.join(COLUMNS)})"


def is_labelled(value: object) -> bool:
    """Return whether a value has named dimensions and coordinates."""
    return all(hasattr(value, name) for name in ("dims", "coords", "transpose", "dtype"))


def arranged(value: Any, name: str, n_dims: tuple[int, ...]) -> Any:
    """Return an array with the dimensions of its rows and columns first, which are found by their names.

    Raises:
        InputError: If rows or columns are missing or ambiguous, or the number of dimensions is not in ``n_dims``.
    """
    found = [[dim for dim in value.dims if str(dim).lower() in names] for names in (ROWS, COLUMNS)]
    if len(found[0]) != 1 or len(found[1]) != 1 or len(value.dims) not in n_dims:
        more = {(2,): "no other", (3,): "one of labels", (2, 3): "at most one of bands"}[n_dims]
        raise InputError(f"{name} has the dimensions {value.dims}, expected {EXPECTED}, and {more}")
    return value.transpose(*found[0], *found[1], ...)


def by_name(image: Any, logits: Any, layout: str) -> tuple[Any, Any, str]:
    """Return the plain arrays of an image (H, W, C) and logits (H, W, K) if they are labelled, and their layout."""
    if is_labelled(image):
        image = arranged(image, "image", (2, 3))
    if is_labelled(logits):
        logits, layout = arranged(logits, "logits", (3,)), "hwk"
        if is_labelled(image):
            check_same_coordinates(image, logits)
        logits = logits.data
    return (image.data if is_labelled(image) else image), logits, layout


def mask_by_name(mask: Any) -> Any:
    """Return the plain array (H, W) of a labelled mask, and other masks unchanged."""
    return arranged(mask, "mask", (2,)).data if is_labelled(mask) else mask


def with_spacing(image: Any, logits: Any, spacing: Any) -> tuple[Any, Any, Any]:
    """Return the arrays of an image and logits, and the spacing of a volume: the given one, or one that they carry.

    Images of nibabel and volumes of MONAI (``MetaTensor``) carry a spacing.
    """
    given = {"image": image, "logits": logits}
    scans = {
        name: of_nibabel(one, name)
        for name, one in given.items()
        if hasattr(one, "dataobj") and hasattr(one.header, "get_xyzt_units")
    }
    if len(scans) == 2:
        check_same_space(scans["image"], scans["logits"], ("image", "logits"))
    check_same_meta(image, logits, ("image", "logits"))
    carried = [scan.spacing for scan in scans.values()]
    carried += [one.pixdim for one in (image, logits) if getattr(one, "is_batch", None) is False and one.ndim == 4]
    image, logits = (scans[name].values if name in scans else one for name, one in given.items())
    return image, logits, carried[0] if spacing is None and carried else spacing


def check_same_meta(image: Any, logits: Any, names: tuple[object, object]) -> None:
    """Raise if two single images of MONAI (``MetaTensor``) with the same pixels have different affines."""
    if all(getattr(one, "is_batch", None) is False for one in (image, logits)) and image.shape[1:] == logits.shape[1:]:
        affines = [np.asarray(one.affine, np.float64) for one in (image, logits)]
        check_same_affine(affines[0], affines[1], image.shape[1:], names)


class Axis(NamedTuple):
    """A regular coordinate: the outer edges of its first and last pixel, and the signed size of a pixel."""

    first: float
    last: float
    step: float


def axis_of(value: Any, place: int) -> Axis | None:
    """Return the coordinate of the dimension at an index, or None if it is missing or has one entry."""
    dim = value.dims[place]
    if dim not in value.coords or value.sizes[dim] < 2:
        return None
    at: Array = value.coords[dim].values
    if at.dtype.kind in "fiu":
        rounding = np.finfo(at.dtype).eps * np.abs(at).max() if at.dtype.kind == "f" else 0.0
        at = at.astype(np.float64)
        step = (at[-1] - at[0]) / (len(at) - 1)
        if step and (np.abs(np.diff(at) - step) <= REGULAR * abs(step) + 2 * rounding).all():
            return Axis(at[0] - step / 2, at[-1] + step / 2, step)
    raise InputError(f"the coordinate {dim} is not regular, expected numbers in equal steps: see drop_vars of xarray")


def check_same_coordinates(image: Any, scores: Any) -> None:
    """Raise if an image and scores cover different areas: edges may differ by half a pixel of the larger size."""
    for place in (0, 1):
        ours, theirs = axis_of(image, place), axis_of(scores, place)
        if ours is None or theirs is None:
            continue
        tolerance = (0.5 + REGULAR) * max(abs(ours.step), abs(theirs.step))
        if abs(ours.first - theirs.first) > tolerance or abs(ours.last - theirs.last) > tolerance:
            came = [f"from {axis.first:.10g} to {axis.last:.10g}" for axis in (theirs, ours)]
            raise InputError(
                f"logits covers {scores.dims[place]} {came[0]} and image {came[1]}, expected the same area"
            )


def pixel_area(value: Any) -> tuple[float, str]:
    """Return the area of a pixel and its unit, from the coordinates or the transform of a GeoTIFF, or 1 pixel."""
    rows, columns = axis_of(value, 0), axis_of(value, 1)
    if rows is not None and columns is not None:
        unit, other = (str(value.coords[dim].attrs.get("units", UNIT)) for dim in value.dims[:2])
        return abs(rows.step * columns.step), f"{unit}²" if unit == other else f"{unit} × {other}"
    transforms = [coord.attrs["GeoTransform"] for coord in value.coords.values() if "GeoTransform" in coord.attrs]
    try:
        if transforms:  # of rioxarray and GDAL: x, a, b, y, d, e
            _, a, b, _, d, e = map(float, str(transforms[0]).split())
        elif "transform" in value.attrs:  # of rasterio: a, b, x, d, e, y
            a, b, _, d, e = map(float, tuple(value.attrs["transform"])[:5])
        else:
            return 1.0, "pixels"
    except (TypeError, ValueError):
        came = transforms[0] if transforms else value.attrs["transform"]
        raise InputError(f"the transform of the image is {came!r}, expected six numbers") from None
    return abs(a * e - b * d), f"{UNIT}²"
