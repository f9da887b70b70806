"""Decisions on a raster whose probabilities were written in tiles."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from locpmap.deciding import Decider, Decision
from locpmap.deciding.inputs import Sites, sites_of
from locpmap.deciding.statistics import affine_argmax
from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.progress import Report, reporting
from locpmap.scale.sources import BAD_CHUNK, BAD_METADATA, check_codecs, needed, open_zarr
from locpmap.scale.store import NO_LABEL, NODATA
from locpmap.scale.tiling import Reach, Tile, Tiling
from locpmap.scale.whole_raster import BLOCK

DECIDED = "decided"


def decide_tiled(
    path: PathLike, measure: str = "iou", *, progress: bool | Callable[[int, int], None] | None = None
) -> Decision:
    """Decide the labels of a raster with the best expected mean IoU or Dice over the raster.

    Reads the probabilities of a finished run twice, first for the statistics of a :class:`locpmap.Decider` and then to
    label every pixel.  Writes the labels to the array ``decided`` of the same zarr group and replaces those of an
    earlier decision.

    Args:
        path (str or os.PathLike): Folder of a zarr group that :meth:`locpmap.TiledResult.write` wrote, with labels and
            probabilities.
        measure (str, default "iou"): "iou" or "dice".
        progress (bool or callable, default None): As in :meth:`locpmap.TiledResult.write`, without the rate.

    Returns:
        Decision: Its ``labels`` are a zarr array (H, W) or (D, H, W) of int16, -1 at masked pixels.

    Raises:
        InputError: If the folder holds no finished run with labels and probabilities, or cannot be read or written.

    Notes:
        The raster is read in blocks of 1024 × 1024 pixels, and a volume in blocks of 1024 planes and rows, so the
        decision does not depend on the tiles.

    Example:
        >>> import os, tempfile
        >>> from locpmap.scale import decide_tiled
        >>> scores = np.random.default_rng(0).normal(size=(40, 50, 4)) + [2.0, 1.0, 0.0, 0.0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "out.zarr")
        ...     _ = lp.infer_tiled(scores, 0.5, tile=32, max_sweeps=8).write(path)
        ...     decide_tiled(path, "iou").labels.shape
        (40, 50)

    See Also:
        :meth:`locpmap.Result.decide`, :class:`locpmap.Decider`.
    """
    decider, folder = Decider(measure), Path(os.path.abspath(checked_path(path)))
    with reporting(progress, "deciding") as report:
        return _decided(folder, measure, decider, report)


def _decided(folder: Path, measure: str, decider: Decider, progress: Report | None) -> Decision:
    """Compute the statistics of a raster, then decide its labels and write them."""
    labels, probability = _arrays_of(folder)
    height, width, *whole = labels.shape
    blocks = list(Tiling(height, width, BLOCK, BLOCK, Reach((), 0)))
    done = iter(range(1, 2 * len(blocks) + 1))

    def sites() -> Iterator[tuple[Tile, Sites]]:
        for block in blocks:
            try:
                p, y = probability[block.core.slices], labels[block.core.slices]
            except BAD_CHUNK:
                raise InputError(f"{folder} is damaged: a chunk of its arrays cannot be read") from None
            if (y == NO_LABEL).any() or not ((p >= 0) & (p <= 1)).all():
                raise InputError(f"{folder} is damaged: a tile is missing, or holds values that are no probabilities")
            yield block, sites_of(p, y >= 0)
            if progress is not None:
                progress(next(done), 2 * len(blocks))

    for _, found in sites():
        decider.add_sites([found])
    slope, offset, expected = decider.rule
    inside, n_sites = 0.0, 0
    draft = folder / f".{DECIDED}.{uuid4().hex[:8]}.part"
    try:
        chunks = {"chunks": labels.chunks, "dtype": np.int16, "fill_value": NO_LABEL}
        attributes = {"nodata": NODATA, "measure": measure, "expected": expected}
        written = needed("zarr", f"{folder}").create_array(draft, shape=labels.shape, attributes=attributes, **chunks)
        for block, found in sites():
            decided = affine_argmax(found.rows, slope, offset)
            written[block.core.slices] = found.spread(decided.labels, (*block.core.shape, *whole)).astype(np.int16)
            inside, n_sites = inside + float(decided.inside.sum()), n_sites + len(found.rows)
        shutil.rmtree(folder / DECIDED, ignore_errors=True)
        draft.rename(folder / DECIDED)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Decision(open_zarr(folder / DECIDED), expected, 1 - inside / max(1, n_sites), 1.0, measure)


def _arrays_of(folder: Path) -> tuple[Any, Any]:
    try:
        group = open_zarr(folder)
        finished, names = group.attrs["locpmap"]["finished"], set(group.array_keys())
    except (InputError, *BAD_METADATA):
        raise InputError(f"{folder} does not hold a tiled run, expected the folder of TiledResult.write()") from None
    if not finished:
        raise InputError(f"{folder} holds an unfinished run, expected a finished one: call write() again")
    if missing := {"labels", "probability"} - names:
        raise InputError(f"{folder} holds no {' and no '.join(sorted(missing))}, expected labels and probability")
    labels, probability = group["labels"], group["probability"]
    for array in (labels, probability):
        check_codecs(array, folder / array.basename)
    if labels.ndim not in (2, 3) or probability.shape[:-1] != labels.shape:
        came = f"labels and probability have shapes {labels.shape} and {probability.shape}"
        raise InputError(f"{folder} is damaged: {came}, expected (H, W) and (H, W, L), or those of a volume")
    return labels, probability
