"""`infer_tiled`: decode rasters that do not fit into memory, with results identical to `infer`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any
from uuid import uuid4

import numpy as np

from locpmap.errors import InputError, InputTypeError, one_of, unknown, whole_number
from locpmap.formats.atomic import PathLike
from locpmap.graphs.grid import MAX_SITE
from locpmap.inference.api import configure
from locpmap.inference.decoder import Decoder
from locpmap.kernels.placement import device_name
from locpmap.progress import reporting
from locpmap.result import entropy_of, variance_of
from locpmap.scale.decoding import Decoding, Finish
from locpmap.scale.model import GridModel, TiledModel
from locpmap.scale.sources import needed
from locpmap.scale.store import ARRAYS, Store
from locpmap.scale.tiling import Reach, Tile, Tiling, reach_of, tile_size
from locpmap.scale.workers import Workers, each, value_of, workers

Progress = Callable[[int, int, float], None]

DEVICES = ("cpu", "cuda")
ARGUMENTS = ("tile", "seed", "connectivity", "spacing", "mask", "backend", "device")


def infer_tiled(
    unary: Any,
    pairwise: Any,
    method: str | Decoder = "locpmap",
    *,
    tile: int | tuple[int, int] = 1024,
    seed: int = 0,
    connectivity: Any = None,
    spacing: Any = None,
    mask: Any = None,
    backend: str = "auto",
    device: str = "cpu",
    **options: Any,
) -> TiledResult:
    """Decode a raster or a volume of any size, tile by tile.

    Labels and probabilities have exactly the values that :func:`locpmap.infer` computes for the whole raster with the
    same options, backend and device. (Labels are int16 here, int64 there.) Each tile is decoded with a halo: a margin
    of surrounding sites, wide enough to contain all sites that the tile's labels depend on. The arrays of the result
    are lazy: unaries are read and tiles are decoded when an array is computed or written.

    Args:
        unary (array): Scores (H, W, L), or (D, H, W, L) of a volume: a dask, xarray, zarr or NumPy array (also
            memory-mapped), a torch tensor, or the result of :func:`locpmap.scale.open_raster`.
        pairwise (float, array, sequence or Factored): Pairwise term, as in :meth:`locpmap.Potentials.grid` or
            :meth:`locpmap.Potentials.volume`. Values per edge may be any of the array types of ``unary``.
        method (str or Decoder, default "locpmap"): "locpmap", "icm", "icm_iter" or "mean_field", or a configured
            decoder of these classes. The blocks of LocPMAP must be of bounded size: "sites", tiles (h, w), or parts of
            lines such as "rows:16".
        tile (int or tuple of int, default 1024): Height and width of the tiles, or one number for both. In a volume,
            numbers of planes and rows; tiles contain whole rows. The tiles are also the chunks of the result.
        seed (int, default 0): Seed of the random generator.
        connectivity (int or tuple, default None): As in :meth:`locpmap.Potentials.grid`, 4 by default; 6 (the default)
            or 26 in a volume.
        spacing (tuple of float, default None): As in :meth:`locpmap.Potentials.volume`; for volumes only.
        mask (array, default None): Booleans (H, W) or (D, H, W), True where a site is ignored. Pixels without data in
            a TIFF file of unaries are ignored as well. Tiles in which all sites are ignored are skipped. A mask in
            memory must leave at least one site.
        backend (str, default "auto"): As in :func:`locpmap.infer`.
        device (str, default "cpu"): "cpu" or "cuda". All tiles use the same device, because results differ in the last
            bits between devices.
        **options: Options of the decoder, if ``method`` is a name.

    Returns:
        TiledResult: Labels, probabilities, variance and entropy as dask arrays, and a method ``write``.

    Raises:
        InputError: If a shape or option is wrong, or if the decoder's labels depend on sites at unbounded distance.

    Notes:
        With single-site blocks and 4 neighbours, a label depends after T sweeps on sites at most 2T rows or columns
        away, or 2T + 1 for conditional probabilities. In a volume with 6 neighbours these are planes and rows. The
        width of the halo follows from ``max_sweeps``, the blocks and the connectivity (:mod:`locpmap.scale.tiling`).
        Climbs on images take 5 to 9 sweeps on average, and the longest often about 20, so a smaller ``max_sweeps``
        often gives the same labels with smaller halos; check :attr:`TiledResult.converged`.

        A tile takes about ``(3 · bytes per score + 1) · L + 16`` bytes per pixel of the tile and its halo.

    Example:
        >>> unary = np.random.default_rng(0).normal(size=(100, 90, 3))
        >>> tiled = lp.infer_tiled(unary, 1.0, tile=40, max_sweeps=8, n_samples=10)
        >>> whole = lp.infer(lp.Potentials.grid(unary, 1.0), max_sweeps=8, n_samples=10)
        >>> bool((tiled.labels.compute() == whole.labels).all())
        True
        >>> tiled.labels.numblocks, bool(tiled.converged.all())
        ((3, 3), True)

    See Also:
        :func:`locpmap.infer`, :class:`TiledResult`, :func:`locpmap.scale.refine_tiled`.
    """
    decoder = configure(method, options, ARGUMENTS)
    model = GridModel.parse(unary, pairwise, mask, connectivity, spacing)
    reach = reach_of(decoder, model.connectivity, len(model.builder.shape) - 1)
    return tiled(model, decoder, tile, seed=seed, backend=backend, device=device, reach=reach)


def tiled(
    model: TiledModel,
    decoder: Decoder,
    tile: Any,
    *,
    seed: int,
    backend: str,
    device: str,
    reach: Reach,
    finish: Finish | None = None,
) -> TiledResult:
    """Return the tiled result of a model whose potentials are built window by window."""
    seed = whole_number("seed", seed, 0, 2**64 - 1)
    device = device_name(device)
    if device == "auto":
        raise unknown("device", device, DEVICES)
    *size, _ = model.builder.shape
    height, width, *whole = size
    tile_height, tile_width = tile_size(tile, len(size))
    if math.prod(size) > MAX_SITE:
        raise InputError(f"the raster has {'×'.join(map(str, size))} sites, expected at most 2^48")
    tiling = Tiling(height, width, min(tile_height, height), min(tile_width, width), reach)
    rows, columns = tiling.shape
    window = tiling.tile(rows // 2, columns // 2).window  # the largest window, up to parts of blocks
    if math.prod((*window.shape, *whole)) >= 2**31:
        shape = "×".join(map(str, (*window.shape, *whole)))
        raise InputError(f"a tile with its halo has {shape} sites, expected fewer than 2^31: see tile and max_sweeps")
    decoding = Decoding(model.builder, decoder, seed, backend, device, finish=finish)
    return TiledResult(model, decoding.with_least_weight(model), tiling)


@dataclass(frozen=True)
class Summary:
    """Summary of a tiled run, returned by :meth:`locpmap.TiledResult.write`.

    Attributes:
        tiles (int): Number of tiles of the raster.
        kept (int): Number of tiles that an earlier run had completed.
        pixels (int): Number of pixels or voxels decoded by this run, without halos.
        seconds (float): Duration of this run.
        not_converged (int): Number of tiles with a site, in the tile or its halo, that changed in the last sweep.
    """

    tiles: int
    kept: int
    pixels: int
    seconds: float
    not_converged: int

    @property
    def pixels_per_second(self) -> float:
        """Pixels decoded per second by this run."""
        return self.pixels / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, eq=False)
class TiledResult:
    """Lazy result of :func:`infer_tiled`: labels and their uncertainty as dask arrays, with one chunk per tile.

    Attributes:
        model (TiledModel): The sources of the raster and its pairwise terms.
        decoding (Decoding): The decoder with its seed, backend and device.
        tiling (Tiling): The tiles and their windows, which are the tiles with their halos.

    Example:
        >>> lp.infer_tiled(np.zeros((100, 90, 3)), 1.0, tile=40, max_sweeps=8)
        <TiledResult of locpmap: 100×90, 3 labels, 3×3 tiles, halo 17×17>

    See Also:
        :func:`infer_tiled`
    """

    model: TiledModel
    decoding: Decoding
    tiling: Tiling

    def __repr__(self) -> str:
        (*size, n_labels), (rows, columns) = self.decoding.builder.shape, self.tiling.shape
        tiles = f"{rows}×{columns} tiles, halo {'×'.join(map(str, self.tiling.reach.halo))}"
        return f"<TiledResult of {self.decoding.decoder.name}: {'×'.join(map(str, size))}, {n_labels} labels, {tiles}>"

    @cached_property
    def labels(self) -> Any:
        """Labels (H, W) or (D, H, W), int16; -1 at masked sites."""
        whole = self.decoding.builder.shape[2:-1]
        return self._joined(attrgetter("labels"), lambda tile: (*tile.core.shape, *whole), "int16")

    @cached_property
    def probability(self) -> Any:
        """Probabilities (H, W, L) or (D, H, W, L), or None for decoders without probabilities."""
        if not self.decoding.decoder.has_probability:
            return None
        rest, dtype = self.decoding.builder.shape[2:], self.decoding.builder.dtype
        return self._joined(attrgetter("probability"), lambda tile: (*tile.core.shape, *rest), dtype)

    @cached_property
    def variance(self) -> Any:
        """Variance ``p · (1 - p)`` of each label, like `probability`, or None for decoders without probabilities."""
        return None if self.probability is None else self.probability.map_blocks(variance_of)

    @cached_property
    def entropy(self) -> Any:
        """Entropy ``-Σ p log p`` of each site in nats, like `labels`, or None for decoders without probabilities."""
        p = self.probability
        return None if p is None else p.map_blocks(entropy_of, drop_axis=p.ndim - 1, dtype=p.dtype)

    @cached_property
    def areas(self) -> Any:
        """Number of sites of every sample and label, (M, L), as a dask array; None unless ``keep_samples`` is True."""
        if not self.decoding.n_counted:
            return None
        dask, da = needed("dask", "infer_tiled"), needed("dask.array", "infer_tiled")
        shape = (self.decoding.n_counted, self.decoding.builder.shape[-1])
        areas_of = dask.delayed(attrgetter("areas"))
        tiles = [decoded for row in self._decoded for _, decoded in row]
        return da.stack([da.from_delayed(areas_of(tile), shape, dtype=np.int64) for tile in tiles]).sum(axis=0)

    @cached_property
    def converged(self) -> Any:
        """Whether the climbs of each tile converged: a boolean per tile, as a dask array.

        False means that a site of the tile or of its halo was still changing in the last sweep.
        """
        return self._joined(lambda decoded: np.array([[decoded.converged]]), lambda tile: (1, 1), bool)

    def write(
        self,
        path: PathLike,
        *,
        arrays: Sequence[str] = ARRAYS,
        scheduler: Any = None,
        n_threads: int | None = None,
        progress: bool | Progress | None = None,
    ) -> Summary:
        """Decode the raster and write the arrays to a zarr group, tile by tile.

        An interrupted run can be resumed: call it again with the same inputs and options. It then decodes only the
        tiles that are missing or have lost a chunk. In missing tiles, labels read as -2 and other arrays as NaN.

        Args:
            path (str or os.PathLike): Folder of the zarr group: a new one, or that of an interrupted run.
            arrays (sequence of str): Names of the arrays to write, of "labels", "probability", "variance" and
                "entropy"; by default all that the decoder provides.
            scheduler (str or dask.distributed.Client, default None): Address of a Dask scheduler, or a client. Its
                workers need access to the same folders. The default is the threads of this process.
            n_threads (int, default None): Number of threads without a scheduler. The default is all available cores.
            progress (bool or callable, default None): True shows a progress bar. A callable is called as
                ``progress(tiles done, tiles, pixels per second)``.

        Returns:
            Summary: Numbers of tiles, decoded pixels, seconds, and tiles that did not converge.

        Raises:
            InputError: If the folder holds a different run, is damaged or cannot be written, or if the scheduler or all
                of its workers are lost.

        Notes:
            The worker that decoded a tile writes its chunks, and marks the tile as done after all of them. A lost
            worker therefore leaves no incomplete tile marked as done. Each worker holds one tile per thread.

        Example:
            >>> import os, tempfile
            >>> tiled = lp.infer_tiled(np.zeros((20, 30, 2)), 1.0, "icm", tile=20)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     summary = tiled.write(os.path.join(folder, "out.zarr"), arrays=["labels"], n_threads=1)
            >>> summary.tiles, summary.pixels
            (2, 600)
        """
        if isinstance(arrays, str) or not isinstance(arrays, Iterable):
            raise InputTypeError(f"arrays is {arrays!r}, expected several names, such as ('labels', 'entropy')")
        arrays = tuple(arrays)
        for name in arrays:
            one_of("array", name, ARRAYS)
        decoder = self.decoding.decoder
        wanted = [name for name in ARRAYS if name in arrays and (name == "labels" or decoder.has_probability)]
        if not wanted:
            raise InputError(f"arrays is {arrays!r}, expected at least one that {decoder.name} provides")
        with reporting(progress, "tiles", "done, total, rate") as report, workers(scheduler, n_threads) as crew:
            if self.decoding.device != "cpu":  # checked on a worker, since this process may have no GPU
                trial = partial(self.decoding.check, self.model.example(0.0))
                for _, future in each(crew, (trial,), lambda job: job):
                    value_of(future)
            store = Store.prepare(path, self.identity(), self.decoding.builder, self.tiling, wanted)
            whole = math.prod(self.decoding.builder.shape[2:-1])
            return _run(store, partial(self.job, store.write), crew, report, whole)

    def identity(self) -> dict[str, Any]:
        """Return everything that identifies this run: fingerprints of the inputs, options and tile size."""
        decoder = self.decoding.decoder
        return {
            **self.model.identity(),
            "method": decoder.name,
            "options": dict(sorted(vars(decoder).items())),
            "seed": self.decoding.seed,
            "backend": self.decoding.backend,
            "device": self.decoding.device,
            "tile": [self.tiling.tile_height, self.tiling.tile_width],
        }

    def job(self, then: Callable[[Tile, Any], Any], tile: Tile) -> Any:
        """Return a dask object that decodes one tile and passes the tile and its result to ``then``."""
        dask = needed("dask", "infer_tiled")
        decode = dask.delayed(partial(_decode, self.decoding, then, tile), name=f"job-{uuid4().hex}", traverse=False)
        name = f"tile-{tile.row}-{tile.column}-{uuid4().hex}"  # shown by the dashboard
        return decode(*self.model.pieces(tile.window), dask_key_name=name)

    @cached_property
    def _decoded(self) -> list[list[tuple[Tile, Any]]]:
        """Rows of tiles, each with its dask object."""
        rows, columns = self.tiling.shape
        tiles = [[self.tiling.tile(i, j) for j in range(columns)] for i in range(rows)]
        return [[(tile, self.job(lambda _, decoded: decoded, tile)) for tile in row] for row in tiles]

    def _joined(self, read: Callable[[Any], Any], shape_of: Callable[[Tile], tuple[int, ...]], dtype: Any) -> Any:
        """Return the array whose blocks are ``read(decoded)`` of the tiles, of the shapes ``shape_of(tile)``."""
        dask, da = needed("dask", "infer_tiled"), needed("dask.array", "infer_tiled")
        block = dask.delayed(read)
        blocks = [
            [da.from_delayed(block(decoded), shape_of(tile), dtype=dtype) for tile, decoded in row]
            for row in self._decoded
        ]
        return da.concatenate([da.concatenate(row, axis=1) for row in blocks], axis=0)


def _run(store: Store, job_of: Callable[[Tile], Any], crew: Workers, progress: Progress | None, whole: int) -> Summary:
    """Decode and write the missing tiles of a store; ``whole`` is the number of sites in a row of a volume, or 1."""
    began = time.perf_counter()
    total, missing = math.prod(store.tiling.shape), store.missing()
    if missing:
        store.update(finished=False)  # also if an earlier run had finished
    kept = done = total - len(missing)
    pixels = 0
    with closing(each(crew, missing, job_of)) as ended:
        for tile, future in ended:
            value_of(future)
            done, pixels = done + 1, pixels + math.prod(tile.core.shape) * whole
            if progress is not None:
                progress(done, total, pixels / (time.perf_counter() - began))
    not_converged = store.finish()
    return Summary(total, kept, pixels, time.perf_counter() - began, not_converged)


def _decode(decoding: Decoding, then: Callable[[Tile, Any], Any], tile: Tile, *pieces: Any) -> Any:
    """Decode a tile and pass it on with its result; a module's function, which is small when sent to a worker."""
    return then(tile, decoding(tile, *pieces))
