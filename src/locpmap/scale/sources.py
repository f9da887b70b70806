"""Sources: large arrays that workers read one window at a time.

A source is any object with ``shape``, ``dtype`` and slicing: a NumPy, dask or zarr array, or a file opened by
:func:`open_raster`. Files are reopened for each read, so that only the path of a source is sent to a worker.
"""

import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from locpmap.arrays import Array, is_tensor, to_numpy
from locpmap.errors import InputError, InputTypeError, imported
from locpmap.formats.arrays import describe
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.formats.rasters import Place, is_raster, open_tiff, place_of, rasterio_for, without_data
from locpmap.formats.readable import reason

Index = tuple[slice, ...]

# Codecs allowed in zarr chunks; others raise an error, because some zarr filters execute code from the data.
CODECS = {"bytes", "transpose", "blosc", "gzip", "zstd", "crc32c", "sharding_indexed"}
OLD_CODECS = {"blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "shuffle", "delta", "fixedscaleoffset", "bitround"}

# Exceptions that zarr raises for malformed files.
BAD_METADATA = (OSError, ValueError, TypeError, KeyError, AttributeError)
BAD_CHUNK = (OSError, ValueError, RuntimeError, EOFError, SystemError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class NumpyFile:
    """A source in a ``.npy`` file, or in a memory-mapped part of a file."""

    path: Path
    shape: tuple[int, ...]
    dtype: Any
    offset: int
    transposed: bool

    @classmethod
    def open(cls, path: Path) -> Self:
        shape, transposed, dtype, offset = describe(path)
        return cls(path.resolve(), shape, dtype, offset, transposed)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Index) -> Array:
        order: Any = "F" if self.transposed else "C"
        try:
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)
        except (OSError, ValueError) as error:  # the file was deleted or truncated
            raise InputError(f"{self.path} cannot be read any more: {reason(error)}") from None
        return np.array(mapped[index])


@dataclass(frozen=True)
class TiffFile:
    """A source in a TIFF file, (H, W, C) with C bands, read with rasterio."""

    path: Path
    shape: tuple[int, int, int]
    dtype: Any
    place: Place | None
    has_mask: bool  # whether pixels may have no data

    @classmethod
    def open(cls, path: Path) -> Self:
        with open_tiff(path) as file:
            kind = np.result_type(*map(np.dtype, file.dtypes))
            if kind.kind not in "fiu":
                raise InputError(f"{path} holds {kind}, expected real numbers")
            has_mask = any([flag.name for flag in flags] != ["all_valid"] for flags in file.mask_flag_enums)
            return cls(path.resolve(), (file.height, file.width, file.count), kind, place_of(file), has_mask)

    @property
    def ndim(self) -> int:
        return 3

    def __getitem__(self, index: Index) -> Array:
        given = index if isinstance(index, tuple) else (index,)
        bands = np.moveaxis(self._read(given, lambda file, window: file.read(window=window)), 0, -1)
        return np.ascontiguousarray(bands[(slice(None), slice(None), *given[2:])])

    def without_data(self, index: Index) -> Array:
        """Return booleans for a slice of the rows and columns, True where a pixel has no data."""
        return self._read(index if isinstance(index, tuple) else (index,), without_data)

    def _read(self, index: Index, reader: Callable[[Any, Any], Array]) -> Array:
        rows, columns = parts = (*index[:2], *[slice(None)] * (2 - len(index)))
        if not all(isinstance(part, slice) and (part.step is None or part.step > 0) for part in parts):
            raise InputError(f"{self.path} is indexed by {index}, expected slices with positive steps")
        window = tuple(part.indices(n)[:2] for part, n in zip(parts, self.shape, strict=False))
        with open_tiff(self.path) as file:
            try:
                return reader(file, window)[..., :: rows.step, :: columns.step]
            except rasterio_for(self.path).errors.RasterioError as error:
                raise InputError(f"{self.path} cannot be read: {reason(error.__cause__ or error)}") from None


@dataclass(frozen=True, eq=False)
class Masks:
    """A mask source: the union of a mask, or None, and the pixels without data of TIFF files."""

    mask: Any
    files: tuple[TiffFile, ...]
    shape: tuple[int, ...]
    dtype: ClassVar[Any] = np.dtype(bool)

    def __getitem__(self, index: Index) -> Array:
        found = [file.without_data(index) for file in self.files]
        return np.logical_or.reduce(found if self.mask is None else [np.asarray(self.mask[index]), *found])


class ZarrArray:
    """A zarr array as a source; a damaged chunk raises an `InputError`."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, tuple(int(n) for n in array.shape), array.dtype
        root = getattr(array.store, "root", None)
        self.path = None if root is None else Path(root) / array.path  # None if it is not in a folder

    def __getitem__(self, index: Index) -> Array:
        try:
            return np.asarray(self.array[index])
        except BAD_CHUNK as error:
            raise InputError(f"{self.path or self.array} cannot be read: {reason(error)}") from None


def open_raster(path: PathLike) -> Any:
    """Open a large array in a file without reading it.

    Slices of the array are read on demand.

    Args:
        path (str or os.PathLike): A ``.npy`` file, a GeoTIFF, or the folder of a zarr array.

    Returns:
        An object with ``shape``, ``dtype`` and slicing, for :func:`locpmap.infer_tiled`,
        :func:`locpmap.scale.refine_tiled` or ``dask.array.from_array``.

    Raises:
        InputError: If the path does not exist, is damaged, or does not hold one array of real numbers.

    Example:
        >>> from locpmap.scale import open_raster
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "unary.npy")
        ...     np.save(path, np.zeros((100, 90, 3)))
        ...     raster = open_raster(path)
        ...     raster.shape, raster[:10, :20].shape
        ((100, 90, 3), (10, 20, 3))

    See Also:
        :func:`locpmap.infer_tiled`
    """
    file = checked_path(path)
    if not os.path.exists(file):  # Path.exists may raise if the name is too long
        raise InputError(f"{path} does not exist, expected a .npy file, a GeoTIFF or a zarr array")
    if file.suffix.lower() == ".npy":
        return NumpyFile.open(file)
    if is_raster(file):
        return TiffFile.open(file)
    found = open_zarr(file)
    if not hasattr(found, "dtype"):
        raise InputError(f"{path} is a group of zarr arrays, expected one array")
    return found


def open_zarr(path: Path) -> Any:
    """Open a zarr array, or a group of arrays, for reading."""
    zarr = needed("zarr", f"{path}")
    try:
        found = zarr.open(path, mode="r")
    except BAD_METADATA as error:
        raise InputError(
            f"{path} is damaged or has another format, expected .npy, GeoTIFF or zarr: {reason(error)}"
        ) from None
    if hasattr(found, "dtype"):
        check_codecs(found, path)
    return found


def check_codecs(array: Any, name: object) -> None:
    """Raise for zarr arrays that do not hold numbers, or that use codecs other than the allowed ones."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {array.dtype}, expected real numbers")
    metadata = array.metadata
    if 0 in array.chunks:
        raise InputError(f"{name} is damaged: it has chunks {array.chunks}, expected at least one of each")
    if metadata.zarr_format == 3:
        used, known = set(_names(codec.to_dict() for codec in metadata.codecs)), CODECS
    else:
        parts = (*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ()))
        used, known = {part.codec_id for part in parts}, OLD_CODECS
    if not used <= known:
        raise InputError(f"{name} uses the codec {sorted(used - known)[0]}, expected one of {', '.join(sorted(known))}")


def _names(codecs: Iterable[Any]) -> Iterator[str]:
    """Yield the names of codecs, including those nested in shards."""
    for codec in codecs:
        yield codec["name"]
        inside = codec.get("configuration", {})
        yield from _names([*inside.get("codecs", ()), *inside.get("index_codecs", ())])


def as_source(value: Any, name: str) -> Any:
    """Return the value as a source; memory-mapped arrays become files, and other values in memory NumPy arrays."""
    if hasattr(value, "dims") and hasattr(value, "data"):  # xarray; its dimension names and coordinates are ignored
        value = value.data
    # A copy-on-write map may differ from its file, so it is treated as an array in memory.
    mapped = isinstance(value, np.memmap) and value.filename is not None and value.mode != "c"
    if mapped and not isinstance(value.base, np.ndarray):
        transposed = value.flags.f_contiguous and not value.flags.c_contiguous
        value = NumpyFile(Path(value.filename).resolve(), value.shape, value.dtype, value.offset, transposed)
    elif isinstance(value, np.ndarray | Number | list | tuple) or is_tensor(value):
        return to_numpy(value, name)
    if not all(hasattr(value, attribute) for attribute in ("shape", "dtype", "__getitem__")):
        raise InputTypeError(f"{name} is a {type(value).__name__}, expected an array of NumPy, dask or zarr")
    if hasattr(value, "metadata") and hasattr(value, "store"):
        check_codecs(value, name)
        value = ZarrArray(value)
    try:
        kind = np.dtype(value.dtype).kind
    except TypeError:  # the dtype of another library
        kind = "?"
    if kind not in "fiub":
        raise InputTypeError(f"{name} has dtype {value.dtype}, expected real numbers")
    if any(not isinstance(n, int | np.integer) for n in value.shape):
        raise InputError(f"{name} has chunks of unknown size, expected known sizes: see compute_chunk_sizes of dask")
    return value


def as_mask(value: Any, size: tuple[int, ...], **sources: Any) -> Any:
    """Return a mask source that includes missing data of TIFF files, or None; raise for a full mask in memory."""
    mask = None if value is None else as_source(value, "mask")
    if mask is not None:
        if mask.dtype != np.bool_:
            raise InputError(f"mask has dtype {mask.dtype}, expected booleans (True where a site is ignored)")
        if tuple(mask.shape) != size:
            raise InputError(f"mask has shape {tuple(mask.shape)}, expected {size} like {next(iter(sources))}")
        if isinstance(mask, np.ndarray) and mask.all():
            raise InputError("mask ignores every site, expected at least one that takes part")
    files = tuple(source for source in sources.values() if isinstance(source, TiffFile) and source.has_mask)
    return Masks(mask, files, size) if files else mask


class Piece:
    """A part of a source that a worker reads."""  # not a dataclass, since dask would traverse its fields

    def __init__(self, source: Any, index: Index) -> None:
        self.source, self.index = source, index


def read_piece(piece: Any) -> Any:
    """Return a piece of a raster as an array, or None for None."""
    if isinstance(piece, Piece):
        return np.asarray(piece.source[piece.index])
    return None if piece is None else np.asarray(piece)


def piece_of(source: Any, index: Index) -> Any:
    """Return a part of a source: a slice of a NumPy or dask array, or a `Piece` of a file."""
    return source[index] if is_dask(source) or isinstance(source, np.ndarray) else Piece(source, index)


def is_dask(value: object) -> bool:
    """Return whether the value is a lazy dask object."""
    return hasattr(value, "__dask_graph__")


def fingerprint(source: Any) -> str:
    """Return a string that identifies a source by content (in memory), size and time (files) or name (dask)."""
    if is_dask(source):
        return str(source.name)
    if isinstance(source, np.ndarray):
        values = source.astype(np.float64) if source.dtype.kind in "iu" else source  # 1 and 1.0 are equal
        return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()[:32]
    if isinstance(source, Masks):
        return " ".join(fingerprint(part) for part in (source.mask, *source.files) if part is not None)
    root = source.path if isinstance(source, NumpyFile | TiffFile | ZarrArray) else None
    if root is None:
        return f"{source!r}"
    digest = hashlib.sha256()
    if isinstance(source, NumpyFile):  # different parts of one file are different sources
        digest.update(f"{source.offset} {source.shape} {source.dtype.str} {source.transposed}\n".encode())
    try:
        files = sorted(file for file in root.rglob("*") if file.is_file()) if root.is_dir() else [root]
        for file in files:
            status = file.stat()
            digest.update(f"{file.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    except OSError as error:
        raise InputError(f"{root} cannot be read any more: {reason(error)}") from None
    return digest.hexdigest()[:32]


def needed(package: str, what: str) -> Any:
    """Import an optional package, or raise an error that names the extra to install."""
    return imported(package, f"{what} needs {package}, which is not installed: pip install '.[scale]' in a clone")
