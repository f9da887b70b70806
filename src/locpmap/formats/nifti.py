"""NIfTI files (.nii, .nii.gz): read scans, logits and labels with nibabel, and write maps with the scan's header.

Arrays keep the order of the axes of the file, (X, Y, Z). Sizes that a header claims are checked before allocation.
"""

import gzip
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, imported
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.readable import reading, reason, size_of
from locpmap.formats.scores import MOST_TIMES

ENDINGS = (".nii", ".nii.gz")
MAX_NUMBERS = 2**31  # of a file
HEADER = 544  # bytes: those of NIfTI-2 and its flag of extensions
CHUNK = 2**22  # bytes that are decompressed at once
MM = {"meter": 1000.0, "mm": 1.0, "micron": 1e-3, "unknown": 1.0}
TOLERANCE = 0.01  # voxels by which corners of equal affines may differ, after rounding to single precision


@dataclass(frozen=True, eq=False)
class Nifti:
    """Numbers (X, Y, Z) or (X, Y, Z, L) of a NIfTI file, and its header.

    Attributes:
        values: Numbers, with the scale factors of the header applied.
        header: nibabel's header.
        affine: (4, 4) from voxels to coordinates in mm.
        spacing: Sides of a voxel in mm.
    """

    values: Array
    header: Any
    affine: Array
    spacing: tuple[float, float, float]


def is_nifti(path: PathLike) -> bool:
    """Return whether a file name ends in .nii or .nii.gz."""
    return Path(path).name.lower().endswith(ENDINGS)


def of_nibabel(image: Any, name: str) -> Nifti:
    """Return the numbers and the space of an image of nibabel; errors refer to it as ``name``."""
    return Nifti(np.asanyarray(image.dataobj), image.header, *_space(image.header, name))


def read_scan(path: PathLike) -> Nifti:
    """Read a scan (X, Y, Z) in single precision; a last axis of length 1 is dropped."""
    found = _read(path, np.float32)
    if found.values.ndim != 3:
        shape = found.values.shape
        raise InputError(f"{path} has shape {shape}, expected a scan (X, Y, Z) of three axes: choose one channel")
    return found


def read_labels(path: PathLike, scan: Nifti, name: object) -> Array:
    """Read integer labels (X, Y, Z) in the space of a scan; errors refer to the scan as ``name``."""
    found = _read(path, np.float64)
    check_same_space(scan, found, (name, path))
    whole = found.values.ndim == 3 and (np.abs(found.values) < 2**53).all()
    if not whole or (found.values != np.rint(found.values)).any():
        raise InputError(f"{path} has shape {found.values.shape}, expected labels (X, Y, Z) as whole numbers")
    return found.values.astype(np.int64)


def read_logits(path: PathLike, scan: Nifti, name: object) -> Array:
    """Read scores (X, Y, Z, L) in the space of a scan; errors refer to the scan as ``name``."""
    found = _read(path, np.float32)
    if found.values.ndim != 4:
        raise InputError(f"{path} has shape {found.values.shape}, expected logits (X, Y, Z, labels) of four axes")
    check_same_space(scan, found, (name, path))
    return found.values


def check_same_space(scan: Nifti, other: Nifti, names: tuple[object, object]) -> None:
    """Raise if two volumes differ in their shape, or their corners by more than 1 % of a voxel."""
    shape, own = scan.values.shape[:3], other.values.shape[:3]
    if len(shape) < 3:
        raise InputError(f"{names[0]} has shape {shape}, expected the three axes of a volume")
    if shape != own:
        raise InputError(f"{names[1]} has {own} voxels and {names[0]} has {shape}, expected the same shape")
    check_same_affine(scan.affine, other.affine, shape, names)


def check_same_affine(ours: Array, theirs: Array, shape: Sequence[int], names: tuple[object, object]) -> None:
    """Raise if the corners of two images of one shape differ by more than 1 % of the smallest side of a voxel."""
    n_axes = len(ours) - 1
    sides = [*shape, *[1] * (n_axes - len(shape)), 1]
    corners = np.array([(*corner, 1) for corner in np.ndindex((2,) * n_axes)]) * sides
    apart = np.linalg.norm(corners @ (ours - theirs).T, axis=1).max()
    if not apart <= TOLERANCE * np.linalg.norm(ours[:-1, :-1], axis=0).min():
        raise InputError(
            f"{names[1]} lies {apart:.3g} mm from {names[0]} at a corner, expected the same affine:"
            " give the logits the affine of the scan"
        )


def write_nifti(path: PathLike, values: Array, like: Nifti) -> None:
    """Write a map (X, Y, Z) or (X, Y, Z, L) with the affine and the header of a scan, compressed for .nii.gz."""
    nibabel, header = nibabel_for(path), like.header.copy()
    header.set_data_dtype(values.dtype)
    header["cal_min"] = header["cal_max"] = 0  # the range of intensities to show
    image = (nibabel.Nifti2Image if header["sizeof_hdr"] == 540 else nibabel.Nifti1Image)(values, None, header)
    image.header.set_slope_inter(1, 0)
    content = image.to_bytes()
    write_bytes(path, [gzip.compress(content, mtime=0) if Path(path).suffix.lower() == ".gz" else content])


def _read(path: PathLike, dtype: Any) -> Nifti:
    """Read a file whose header and size agree."""
    nibabel, size = nibabel_for(path), size_of(path, "a NIfTI file")
    compressed = Path(path).suffix.lower() == ".gz"
    with reading(path), (gzip.open if compressed else open)(path, "rb") as file:
        header = _header(nibabel, _part(path, file, HEADER), path)
        shape, kind = header.get_data_shape(), header.get_data_dtype()
        if kind.kind not in "fiu":
            raise InputError(f"{path} holds {kind}, expected real numbers")
        if not 3 <= len(shape) <= 5 or min(shape) < 1:
            raise InputError(f"{path} has shape {shape}, expected a volume: (X, Y, Z) or (X, Y, Z, labels)")
        offset = int(header["vox_offset"])
        claimed = math.prod(shape) * kind.itemsize + offset
        if math.prod(shape) > MAX_NUMBERS or claimed > size * (MOST_TIMES if compressed else 1):
            raise InputError(
                f"{path} is damaged or too large: its header claims {shape} numbers of {kind}, and the file has"
                f" {size} bytes"
            )
        affine, spacing = _space(header, path)
        file.seek(0)
        content = _part(path, file, claimed + 1)
    if len(content) < claimed or (compressed and len(content) > claimed):
        found = f"more than {claimed}" if len(content) > claimed else len(content)
        raise InputError(f"{path} is damaged: its header claims {claimed} bytes, and it holds {found}")
    raw = np.frombuffer(content, kind, math.prod(shape), offset).reshape(shape, order="F")
    slope, shift = header.get_slope_inter()
    with np.errstate(all="ignore"):  # numbers that the type cannot hold become infinite, which raises an error later
        values = raw.astype(dtype)
        if slope is not None and (slope, shift) != (1.0, 0.0):
            values = (raw * float(slope) + float(shift)).astype(dtype)
    if len(shape) == 5 and shape[3] == 1:  # NIfTI's vectors, one per voxel
        values = values[:, :, :, 0]
    return Nifti(values[..., 0] if values.shape[3:] == (1,) else values, header, affine, spacing)


def _part(path: PathLike, file: Any, most: int) -> bytes:
    """Read at most ``most`` bytes, in chunks, so that memory depends on what the file holds."""
    content = io.BytesIO()
    try:
        while (left := most - content.tell()) > 0 and (chunk := file.read(min(CHUNK, left))):
            content.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged or not a compressed file: {reason(error)}") from None
    return content.getvalue()


def _header(nibabel: Any, content: bytes, path: PathLike) -> Any:
    """Return the header of NIfTI-1 or NIfTI-2, as it is in the file: nibabel would replace a spacing of 0 by 1."""
    for kind in (nibabel.Nifti1Header, nibabel.Nifti2Header):
        block = content[: kind.template_dtype.itemsize]
        if kind.may_contain_header(block) and len(block) == kind.template_dtype.itemsize:
            try:
                header = kind(block, check=False)
                header.get_data_shape(), header.get_data_dtype(), header.get_slope_inter()
            except (nibabel.spatialimages.HeaderDataError, ValueError, KeyError) as error:
                raise InputError(f"{path} is damaged: {reason(error)}") from None
            if header["magic"].item()[:2] != b"n+":
                raise InputError(f"{path} has its data in another file, expected both in one .nii file")
            if not len(block) <= header["vox_offset"] < 2**31:
                came = f"begin at byte {float(header['vox_offset']):g}"
                raise InputError(f"{path} is damaged: its data {came}, expected them after the header")
            return header
    raise InputError(f"{path} is not a NIfTI file, expected a scan or logits in .nii or .nii.gz")


def _space(header: Any, path: PathLike) -> tuple[Array, tuple[float, float, float]]:
    """Return the affine and the spacing in mm; raise if a side of a voxel is 0 or not a number."""
    with np.errstate(all="ignore"):
        try:
            unit = header.get_xyzt_units()[0]
            affine = header.get_best_affine().astype(np.float64)
        except (ValueError, KeyError, ArithmeticError) as error:
            raise InputError(f"{path} is damaged: {reason(error)}") from None
        affine[:3] *= MM.get(unit, 1.0)
        x, y, z = np.linalg.norm(affine[:3, :3], axis=0).tolist()
        if not np.isfinite(affine).all() or not min(x, y, z) > 0 or abs(np.linalg.det(affine)) < 1e-6 * x * y * z:
            raise InputError(f"{path} has a spacing of ({x:g}, {y:g}, {z:g}) mm, expected voxels with a volume")
    return affine, (x, y, z)


def nibabel_for(path: PathLike) -> Any:
    """Import nibabel; raise an error that names the file if it is not installed."""
    needs = "which needs nibabel: pip install '.[nifti]' in a clone, or use .npy in Python"
    return imported("nibabel", f"{path} is a NIfTI file, {needs}")
