"""GeoTIFF files: read them with rasterio, and write maps of 8 or 16 bits."""

import io
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, imported
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.images import MAX_PIXELS
from locpmap.formats.readable import reason, size_of

ENDINGS = (".tif", ".tiff")
FULL = 2**16 - 2  # largest value of a 16-bit map; 65535 marks pixels without data
DESCRIPTION, NODATA = 270, 42113  # TIFF tags: image description, and GDAL's nodata value


class Place(NamedTuple):
    """Georeference of a raster."""

    crs: Any  # rasterio's coordinate reference system, or None
    transform: Any  # affine map from (column, row) to coordinates
    height: int
    width: int

    @property
    def corners(self) -> Array:
        """Coordinates of three corners, (3, 2)."""
        a, b, x, d, e, y, *_ = self.transform
        columns, rows = np.array([0, self.width, 0]), np.array([0, 0, self.height])
        return np.stack([a * columns + b * rows + x, d * columns + e * rows + y], axis=1)

    @property
    def diagonal(self) -> float:
        """Length of a pixel's diagonal, in the units of the coordinates."""
        a, b, _, d, e, *_ = self.transform
        return math.hypot(a + b, d + e)


@dataclass(frozen=True, eq=False)
class Raster:
    """Pixels (H, W) or (H, W, C) with their georeference and a mask of missing data."""

    pixels: Array
    place: Place | None  # None if the file has no georeference
    masked: Array | None  # (H, W), True where data are missing

    def filled(self) -> Array:
        """Return the pixels with missing data replaced by the mean of the others, which adds no strong edges."""
        if self.masked is None or self.masked.all():
            return self.pixels
        pixels = self.pixels.copy()
        pixels[self.masked] = self.pixels[~self.masked].mean(axis=0)
        return pixels


def is_raster(path: PathLike) -> bool:
    """Return whether a file name ends in .tif or .tiff."""
    return Path(path).suffix.lower() in ENDINGS


def read_raster(path: PathLike) -> Raster:
    """Read all bands of a TIFF file; pixels without data are masked and set to 0."""
    with open_tiff(path) as file:
        if file.width * file.height * file.count > 4 * MAX_PIXELS:
            raise InputError(f"{path} has {file.count} bands of {file.width}×{file.height} pixels, expected fewer")
        try:
            bands = file.read()
            valid = ~without_data(file)
        except rasterio_for(path).errors.RasterioError as error:
            raise InputError(f"{path} cannot be read as a TIFF file: {reason(error.__cause__ or error)}") from None
        place = place_of(file)
    if bands.dtype.kind not in "fiu":
        raise InputError(f"{path} holds {bands.dtype}, expected real numbers")
    bands[:, ~valid] = 0
    pixels = bands[0] if len(bands) == 1 else np.moveaxis(bands, 0, -1)
    return Raster(pixels, place, None if valid.all() else ~valid)


def open_tiff(path: PathLike) -> Any:
    """Open a TIFF file with rasterio."""
    size_of(path, "a TIFF file")
    rasterio = rasterio_for(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)  # a georeference is optional
            return rasterio.open(Path(path), driver="GTiff")
    except rasterio.errors.RasterioError as error:
        raise InputError(f"{path} cannot be read as a TIFF file: {reason(error.__cause__ or error)}") from None


def without_data(file: Any, window: Any = None) -> Array:
    """Return a mask (H, W) of pixels without data in any band or, if nodata is NaN, with NaN in some band."""
    empty = file.dataset_mask(window=window) == 0
    if file.nodata is not None and math.isnan(file.nodata):
        empty |= np.isnan(file.read(window=window)).any(axis=0)
    return np.asarray(empty)


def place_of(file: Any) -> Place | None:
    """Return the georeference of an open file, or None."""
    known = file.crs is not None or not file.transform.is_identity
    return Place(file.crs, file.transform, file.height, file.width) if known else None


def check_same_place(image: Place | None, scores: Place | None, names: tuple[object, object]) -> None:
    """Raise if an image and scores have different coordinate systems or cover different areas.

    If both have the same size, corners may differ by half the diagonal of a pixel.  Otherwise they may differ by the
    diagonal of a pixel of the scores.
    """
    if image is None or scores is None:
        return
    if image.crs is not None and scores.crs is not None and image.crs != scores.crs:
        raise InputError(
            f"{names[1]} is in the coordinate system {scores.crs} and {names[0]} in {image.crs}, expected the same one"
        )
    same_size = (image.height, image.width) == (scores.height, scores.width)
    tolerance = image.diagonal / 2 if same_size else scores.diagonal
    distance = np.hypot(*(image.corners - scores.corners).T)
    if not (distance <= tolerance * (1 + 1e-6)).all():
        raise InputError(
            f"{names[1]} covers {_bounds(scores)} and {names[0]} {_bounds(image)}, expected scores of the same area"
        )


def _bounds(place: Place) -> str:
    corners = np.vstack([place.corners, place.corners[1:].sum(0) - place.corners[0]])
    (left, bottom), (right, top) = corners.min(0), corners.max(0)
    return f"x {left:.10g} to {right:.10g}, y {bottom:.10g} to {top:.10g}"


def write_map(path: PathLike, values: Array, most: float, what: str, place: Place | None, masked: Array) -> None:
    """Write values (H, W) in [0, most], scaled to integers from 0 to 65534; 65535 marks pixels without data."""
    whole = np.round(values * (FULL / most)).clip(0, FULL).astype(np.uint16)
    whole[masked] = FULL + 1
    write_numbers(path, whole, f"{what}: {FULL} is {most:.6g}", place, FULL + 1)


def write_numbers(path: PathLike, values: Array, what: str, place: Place | None, nodata: int) -> None:
    """Write 8-bit or 16-bit integers (H, W) as a TIFF file, with a georeference if given and a nodata tag."""
    content = _plain(values, what, nodata) if place is None else _georeferenced(path, values, what, place, nodata)
    write_bytes(path, [content])


def _plain(values: Array, what: str, nodata: int) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    tags = {DESCRIPTION: what, NODATA: str(nodata)}
    Image.fromarray(values).save(content, "TIFF", compression="tiff_adobe_deflate", tiffinfo=tags)
    return content.getvalue()


def _georeferenced(path: PathLike, values: Array, what: str, place: Place, nodata: int) -> bytes:
    height, width = values.shape
    profile = {"height": height, "width": width, "count": 1, "dtype": values.dtype.name, "nodata": nodata}
    georeference = {"crs": place.crs, "transform": place.transform}
    with rasterio_for(path).MemoryFile() as memory:
        with memory.open(driver="GTiff", compress="deflate", **profile, **georeference) as file:
            file.write(values, 1)
            file.update_tags(TIFFTAG_IMAGEDESCRIPTION=what)
        return bytes(memory.getbuffer())


def rasterio_for(path: PathLike) -> Any:
    """Import rasterio; raise an error that names the file if it is not installed."""
    needs = "which needs rasterio: pip install '.[geo]' in a clone, or use PNG or .npy"
    return imported("rasterio", f"{path} is a TIFF file, {needs}")
