"""TIFF files: maps of 16 bits for any program, and GeoTIFF with its georeference where rasterio is installed."""

from __future__ import annotations

import importlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.images import MAX_PIXELS
from locpmap.formats.readable import size_of

Array = npt.NDArray[Any]

ENDINGS = (".tif", ".tiff")
FULL = 2**16 - 1
DESCRIPTION = 270  # the tag of TIFF that says in words what a picture shows


@dataclass(frozen=True, eq=False)
class Raster:
    """Pixels (H, W) or (H, W, C), where they lie on the earth, and which of them have no data."""

    pixels: Array
    place: dict[str, Any] | None  # ``crs`` and ``transform`` of rasterio, if the file has them
    masked: Array | None  # (H, W), True where there are no data

    def filled(self) -> Array:
        """The pixels, with the mean of the others where there are no data: a jump there would outweigh real ones."""
        if self.masked is None or self.masked.all():
            return self.pixels
        pixels = self.pixels.copy()
        pixels[self.masked] = self.pixels[~self.masked].mean(axis=0)
        return pixels


def is_raster(path: PathLike) -> bool:
    """Whether the name of a file ends as TIFF files do."""
    return Path(path).suffix.lower() in ENDINGS


def read_raster(path: PathLike) -> Raster:
    """All bands of a TIFF file, with rasterio; values that its ``nodata`` marks are masked, and 0 in the pixels."""
    size_of(path, "a TIFF file")
    rasterio = _rasterio(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)  # any TIFF file will do
            file = rasterio.open(Path(path), driver="GTiff")
        with file:
            if file.width * file.height * file.count > 4 * MAX_PIXELS:
                raise InputError(f"{path} has {file.count} bands of {file.width}×{file.height} pixels, expected fewer")
            bands, valid = file.read(), file.dataset_mask() > 0
            place = {"crs": file.crs, "transform": file.transform}
            known = file.crs is not None or not file.transform.is_identity
    except rasterio.errors.RasterioError as error:
        reason = (str(error).splitlines() or ["unknown reason"])[0][:100]
        raise InputError(f"{path} cannot be read as a TIFF file: {reason}") from None
    if bands.dtype.kind not in "fiu":
        raise InputError(f"{path} holds {bands.dtype}, expected real numbers")
    bands[:, ~valid] = 0
    pixels = bands[0] if len(bands) == 1 else np.moveaxis(bands, 0, -1)
    return Raster(pixels, place if known else None, None if valid.all() else ~valid)


def write_map(path: PathLike, values: Array, most: float, what: str, place: dict[str, Any] | None) -> None:
    """Values (H, W) from 0 to ``most`` as whole numbers from 0 to 65535; the file's description says so."""
    whole = np.round(values * (FULL / most)).clip(0, FULL).astype(np.uint16)
    write_numbers(path, whole, f"{what}: 65535 is {most:.6g}", place)


def write_numbers(path: PathLike, values: Array, what: str, place: dict[str, Any] | None) -> None:
    """Whole numbers (H, W) of 8 or 16 bits as a TIFF file, with a georeference if there is one."""
    write_bytes(path, [_plain(values, what) if place is None else _georeferenced(path, values, what, place)])


def _plain(values: Array, what: str) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(values).save(content, "TIFF", compression="tiff_adobe_deflate", tiffinfo={DESCRIPTION: what})
    return content.getvalue()


def _georeferenced(path: PathLike, values: Array, what: str, place: dict[str, Any]) -> bytes:
    rasterio = _rasterio(path)
    height, width = values.shape
    size = {"height": height, "width": width, "count": 1, "dtype": values.dtype.name}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", compress="deflate", **size, **place) as file:
            file.write(values, 1)
            file.update_tags(TIFFTAG_IMAGEDESCRIPTION=what)
        return bytes(memory.getbuffer())


def _rasterio(path: PathLike) -> Any:
    try:
        return importlib.import_module("rasterio")
    except ImportError:
        raise InputError(f"{path} is a TIFF file, which needs rasterio: install it, or use PNG or .npy") from None
