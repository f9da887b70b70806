"""`refine_xarray`: arrays with named dimensions in, a dataset with error bars out."""

from dataclasses import replace
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np

from locpmap.arrays import to_numpy
from locpmap.errors import InputError, InputTypeError, fraction
from locpmap.formats.atomic import PathLike
from locpmap.inference import LocPMAP
from locpmap.measuring import measure
from locpmap.refining import Refiner, refine
from locpmap.refining.labelled import arranged, check_same_coordinates, is_labelled, mask_by_name, pixel_area
from locpmap.refining.prepared import REFINING
from locpmap.scale.refining import TILES, refine_tiled
from locpmap.scale.sources import is_dask

OPTIONS = ("scores", "stride", "seed", "device")
MAPS = ("labels", "probability", "entropy")
AREAS = ("area", "area_low", "area_high")


def refine_xarray(
    image: Any,
    logits: Any,
    model: Refiner | PathLike | None = None,
    *,
    mask: Any = None,
    decoder: LocPMAP | None = None,
    level: float = 0.9,
    **options: Any,
) -> Any:
    """Refine a segmentation in ``xarray.DataArray`` objects, and return an ``xarray.Dataset`` with its coordinates.

    Rows and columns are found by the names of the dimensions: "y" and "x", "lat" and "lon", "row" and "column" and
    similar. The order of the dimensions has no influence.

    Args:
        image (DataArray): Rows, columns and at most one dimension of bands; None if there is no image.
        logits (DataArray): Rows, columns and one dimension of labels, whose name and coordinate are kept. The scores
            have the image's size, or that size divided by a stride. Coordinates, if both arrays have them, must cover
            the same area.
        model (Refiner, str or os.PathLike, default None): As in :func:`locpmap.refine`.
        mask (array, default None): Booleans, True where a pixel is ignored: rows and columns, or a plain array (H, W).
            Pixels with NaN in the image, or in logits of its size, are ignored as well.
        decoder (LocPMAP, default None): The sampler. The default is that of :func:`locpmap.refine`, with 50 samples.
        level (float, default 0.9): Fraction of the samples whose areas are inside the intervals.
        **options: Options ``scores``, ``stride``, ``seed``, ``device`` and ``progress`` of :func:`locpmap.refine`; for
            dask arrays ``tile`` of :func:`locpmap.scale.refine_tiled` instead of ``progress``.

    Returns:
        Dataset: With the rows, columns, labels and coordinates of the inputs:

        - ``labels``, ``probability`` and ``entropy``, as in :class:`locpmap.Result`;
        - ``area``, ``area_low`` and ``area_high``: median and interval of the area of every label over the samples.

        The variables are lazy if an input is a dask array. They are then computed in tiles, and the scores must have
        the image's size. The call itself reads the raster once or twice, for statistics of the whole raster.

    Raises:
        InputError: If dimensions are missing or ambiguous, coordinates differ or are not regular, or an argument is
            not valid.
        InputTypeError: If the image or the logits are not a DataArray.

    Notes:
        The area of a pixel is the product of the steps of both coordinates, which must be regular. Without coordinates
        it is that of a GeoTIFF's transform (``GeoTransform`` of rioxarray, or rasterio's in ``attrs["transform"]``),
        and otherwise 1. The attribute ``units`` states which. Degrees are not converted to metres.

        Samples are kept while they are counted: 2 bytes per sample and pixel of the image, or of a tile with its halo.

    Example:
        >>> import xarray as xr
        >>> from locpmap.integrations import refine_xarray
        >>> place = {"y": 5e6 - 10.0 * np.arange(32), "x": 10.0 * np.arange(48), "cover": ["water", "forest"]}
        >>> scores = xr.DataArray(3 * np.eye(2)[np.tri(32, 48, dtype=int)], place, ("y", "x", "cover"))
        >>> dataset = refine_xarray(None, scores.transpose("cover", "y", "x"))
        >>> dataset.labels.dims, dataset.probability.dims
        (('y', 'x'), ('y', 'x', 'cover'))
        >>> bool(dataset.area_low.sel(cover="water") < dataset.area.sel(cover="water")), dataset.area.units
        (True, 'map unit²')

    See Also:
        :func:`locpmap.refine`, :func:`locpmap.scale.refine_tiled`, :func:`locpmap.measure`
    """
    inside = fraction("level", level)
    if decoder is not None and not isinstance(decoder, LocPMAP):
        raise InputTypeError(f"decoder is {decoder!r}, expected a LocPMAP")
    for name, value in (("image", image), ("logits", logits)):
        if not is_labelled(value) and not (name == "image" and value is None):
            raise InputTypeError(f"{name} is a {type(value).__name__}, expected an xarray.DataArray")
    logits = arranged(logits, "logits", (3,))
    like = logits if image is None else arranged(image, "image", (2, 3))
    check_same_coordinates(like, logits)
    dims = (*like.dims[:2], logits.dims[2])
    coords = {name: coord for name, coord in like.coords.items() if set(coord.dims) <= set(dims[:2])}
    if dims[2] in logits.coords:
        coords[dims[2]] = logits.coords[dims[2]]
    if taken := [name for name in (dims[2], *coords) if name in (*MAPS, *AREAS)]:
        raise InputError(f"{taken[0]!r} is a dimension or coordinate, expected another name: it is a result's")
    size, unit = pixel_area(like)
    mask = mask_by_name(mask)
    mask = mask if mask is None or is_dask(mask) else to_numpy(mask, "mask")
    pixels, values, mask = _with_missing(None if image is None else like.data, logits.data, mask)
    lazy = any(map(is_dask, (pixels, values, mask)))
    known, where = (*OPTIONS, *(("tile",) if lazy else ("progress",))), " with dask arrays" if lazy else ""
    if wrong := [name for name in options if name not in known]:
        raise InputTypeError(f"refine_xarray got the option {wrong[0]!r}, expected {', '.join(known)}{where}")
    sampler = replace(decoder or (TILES if lazy else REFINING), keep_samples=True)
    if lazy:
        tiled: Any = refine_tiled(pixels, values, model, mask=mask, decoder=sampler, **options)
        maps = (tiled.labels, tiled.probability, tiled.entropy)
        chunks, counts = ((len(AREAS),), (tiled.areas.shape[1],)), tiled.areas.rechunk(tiled.areas.shape)
        areas = counts.map_blocks(_statistics, inside, dtype=np.float64, chunks=chunks)
    else:
        result = refine(pixels, values, model, layout="hwk", mask=mask, decoder=sampler, **options)
        maps = (result.labels, result.probability, result.entropy)
        areas = _statistics(measure(result, "area").values, inside)
    variables: dict[str, Any] = {name: (dims[: array.ndim], array) for name, array in zip(MAPS, maps, strict=True)}
    attributes = {"units": unit, "level": inside}
    variables |= {name: (dims[2:], size * areas[n], attributes) for n, name in enumerate(AREAS)}
    return import_module("xarray").Dataset(variables, coords)


def _with_missing(image: Any, logits: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Return an image, logits, and a mask to which pixels with NaN are added.  NaN is replaced in arrays in memory."""
    size = (logits if image is None else image).shape[:2]
    arrays, masks = [], [] if mask is None else [mask]
    for array, is_image in ((image, True), (logits, False)):
        if array is not None and array.dtype.kind == "f" and array.shape[:2] == size:
            empty = np.isnan(array)
            if is_dask(empty) or empty.any():
                masks.append(empty if empty.ndim == 2 else empty.any(axis=2))
            if not is_dask(empty) and empty.any():  # the mean of an image adds no strong edges
                array = np.where(empty, array[~empty].mean() if is_image and not empty.all() else 0, array)
        arrays.append(array)
    if mask is None or (mask.dtype == np.bool_ and mask.shape == size):  # others raise an error later
        mask = reduce(np.logical_or, masks) if masks else None
    return arrays[0], arrays[1], mask


def _statistics(areas: Any, level: float) -> Any:
    """Return the median, and the ends of the interval, of areas (M, L)."""
    return np.quantile(areas, [0.5, (1 - level) / 2, (1 + level) / 2], axis=0)
