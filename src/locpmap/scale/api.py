"""`infer_tiled`: decode rasters that do not fit into memory, with the answer of the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

import numpy as np

from locpmap.errors import InputError, InputTypeError, unknown, whole_number
from locpmap.formats.atomic import PathLike
from locpmap.graphs.grid import MAX_SITE
from locpmap.inference.api import configure
from locpmap.inference.decoder import Decoder
from locpmap.kernels.placement import check_device
from locpmap.result import entropy_of, variance_of
from locpmap.scale.decoding import Decoding
from locpmap.scale.model import GridModel, TiledModel
from locpmap.scale.reach import Reach, reach_of
from locpmap.scale.running import Progress, Summary, run
from locpmap.scale.sources import needed
from locpmap.scale.store import ARRAYS, Store
from locpmap.scale.tiling import Tile, Tiling, tile_size
from locpmap.scale.workers import each, value_of, workers

DEVICES = ("cpu", "cuda")
ARGUMENTS = ("tile", "seed", "connectivity", "mask", "backend", "device")


def infer_tiled(
    unary: Any,
    pairwise: Any,
    method: str | Decoder = "locpmap",
    *,
    tile: int | tuple[int, int] = 1024,
    seed: int = 0,
    connectivity: Any = 4,
    mask: Any = None,
    backend: str = "auto",
    device: str = "cpu",
    **options: Any,
) -> TiledResult:
    """Decode a raster of any size, tile by tile, with exactly the labels and probabilities of the whole.

    In T sweeps nothing reaches further than 2T sites (one more for conditional probabilities, further for larger blocks
    or more neighbours: :mod:`locpmap.scale.reach`), and noise belongs to places of the whole raster.  So every tile is
    decoded with a halo of that size, found from the decoder's ``max_sweeps``, and what lies inside the halo is, byte
    for byte, what :func:`locpmap.infer` would give for the whole raster with the same options.  A smaller
    ``max_sweeps`` makes smaller halos: climbs on images end by themselves after 5 to 20 sweeps, and
    :attr:`TiledResult.converged` says where one did not.

    Nothing is read or decoded until the result's arrays are computed or written.

    Args:
        unary: Scores (H, W, L): an array of dask, xarray, zarr or NumPy (also memory-mapped), a tensor of torch, or
            what :func:`locpmap.scale.open_raster` opens.
        pairwise: As in :meth:`locpmap.Potentials.grid`; values per edge come in arrays like the unaries'.
        method: "locpmap", with "sites" or tiles as blocks, "icm", "icm_iter" or "mean_field", with options as further
            arguments; or such a decoder.  Others are refused with the reason.
        tile: Height and width of the tiles, or one number for both; these are the chunks of the result.
        seed: The seed of all noise.
        connectivity: As in :meth:`locpmap.Potentials.grid`.
        mask: Booleans (H, W), True where a site is ignored; tiles without any other site cost nothing.  One in memory
            has to leave a site, as in :func:`locpmap.infer`; one that is read tile by tile may leave none.  Pixels
            without data in a TIFF file of unaries are ignored, too.
        backend: As in :func:`locpmap.infer`.
        device: "cpu" or "cuda" for all tiles, since their last bits differ.
        **options: The decoder's options.

    A tile takes about ``(3 · bytes per score + 1) · L + 16`` bytes per pixel of its window.

    >>> import numpy as np
    >>> import locpmap as lp
    >>> unary = np.random.default_rng(0).normal(size=(100, 90, 3))
    >>> tiled = lp.infer_tiled(unary, 1.0, tile=40, max_sweeps=8, n_samples=10)
    >>> whole = lp.infer(lp.Potentials.grid(unary, 1.0), max_sweeps=8, n_samples=10)
    >>> bool((tiled.labels.compute() == whole.labels).all())
    True
    >>> tiled.labels.numblocks, bool(tiled.converged.all())
    ((3, 3), True)
    """
    decoder = configure(method, options, ARGUMENTS)
    reach = reach_of(decoder, connectivity)
    model = GridModel.parse(unary, pairwise, mask, connectivity)
    return tiled(model, decoder, tile, seed=seed, backend=backend, device=device, reach=reach)


def tiled(
    model: TiledModel, decoder: Decoder, tile: Any, *, seed: int, backend: str, device: str, reach: Reach
) -> TiledResult:
    """The result of any model that is made window by window."""
    seed = whole_number("seed", seed, 0, 2**64 - 1)
    check_device(device)
    if device == "auto":
        raise unknown("device", device, DEVICES)
    height, width, _ = model.builder.shape
    tile_height, tile_width = tile_size(tile)
    if height * width > MAX_SITE:
        raise InputError(f"the raster has {height}×{width} sites, expected at most 2^48")
    tiling = Tiling(height, width, min(tile_height, height), min(tile_width, width), reach)
    rows, columns = tiling.shape
    window = tiling.tile(rows // 2, columns // 2).window  # no other is larger but by parts of blocks
    if math.prod(window.shape) >= 2**31:
        shape = "×".join(map(str, window.shape))
        raise InputError(f"a tile with its halo has {shape} sites, expected fewer than 2^31: see tile and max_sweeps")
    return TiledResult(model, Decoding(model.builder, decoder, seed, backend, device).settled(model), tiling)


@dataclass(frozen=True, eq=False)
class TiledResult:
    """Labels and their uncertainty as dask arrays, chunk by tile; made by :func:`infer_tiled`."""

    model: TiledModel  # what is decoded
    decoding: Decoding  # how it is decoded
    tiling: Tiling  # the tiles and their windows

    def __repr__(self) -> str:
        (height, width, n_labels), (rows, columns) = self.decoding.builder.shape, self.tiling.shape
        tiles = f"{rows}×{columns} tiles, halo {'×'.join(map(str, self.tiling.reach.halo))}"
        return f"<TiledResult of {self.decoding.decoder.name}: {height}×{width}, {n_labels} labels, {tiles}>"

    @cached_property
    def labels(self) -> Any:
        """(H, W) int16; -1 where masked."""
        return self._joined("labels", (), "int16")

    @cached_property
    def probability(self) -> Any:
        """(H, W, L), or None for decoders that give labels alone."""
        if not self.decoding.decoder.has_probability:
            return None
        return self._joined("probability", (self.decoding.builder.shape[2],), self.decoding.builder.dtype)

    @cached_property
    def variance(self) -> Any:
        """p(1 - p) per label."""
        return None if self.probability is None else self.probability.map_blocks(variance_of)

    @cached_property
    def entropy(self) -> Any:
        """-Σ p log p per site, in nats."""
        p = self.probability
        return None if p is None else p.map_blocks(entropy_of, drop_axis=2, dtype=p.dtype)

    @cached_property
    def converged(self) -> Any:
        """Per tile, whether no site of its window was still changing at the last sweep.

        A window is more than its tile: where this is False, that site may lie in the halo.
        """
        dask, da = needed("dask", "infer_tiled"), needed("dask.array", "infer_tiled")
        alone = [[dask.delayed(np.reshape)(_field(each, "converged"), (1, 1)) for each in row] for row in self._decoded]
        return da.block([[da.from_delayed(each, (1, 1), dtype=bool) for each in row] for row in alone])

    def write(
        self,
        path: PathLike,
        *,
        arrays: Sequence[str] = ARRAYS,
        scheduler: Any = None,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Summary:
        """Decode, and write the arrays into a zarr group, tile by tile.

        Begun again after an interruption, with the same inputs and options, it does only the tiles that are missing, or
        that have lost a chunk since; until then, labels read as -2 and other arrays as NaN.
        A tile's chunks are written by the worker that decoded it and count as done when all of them are there, so that
        lost workers change nothing.  Workers hold one tile per thread.

        Args:
            path: A folder that is not there yet, or that an earlier run of the same kind began.
            arrays: Which of "labels", "probability", "variance" and "entropy" to write.
            scheduler: The address of a Dask scheduler, whose workers see the same folders, or a Client; by default
                the threads of this process.
            n_threads: Threads of this process, without a scheduler; all available cores by default.
            progress: Called as ``progress(tiles done, tiles in all, pixels per second)``.

        Returns:
            How it ended: tiles, pixels, seconds, and in how many tiles a climb stopped before its end.
        """
        if isinstance(arrays, str) or not isinstance(arrays, Iterable):
            raise InputTypeError(f"arrays is {arrays!r}, expected several names, such as ('labels', 'entropy')")
        if progress is not None and not callable(progress):
            raise InputTypeError(f"progress is {progress!r}, expected a callable that takes (done, total, rate)")
        arrays = tuple(arrays)
        for name in arrays:
            if name not in ARRAYS:
                raise unknown("array", name, ARRAYS)
        decoder = self.decoding.decoder
        wanted = [name for name in ARRAYS if name in arrays and (name == "labels" or decoder.has_probability)]
        if not wanted:
            raise InputError(f"arrays is {arrays!r}, expected some that {decoder.name} gives")
        with workers(scheduler, n_threads) as crew:
            if self.decoding.device != "cpu":  # which is for the workers to say
                trial = partial(self.decoding.try_out, self.model.example(0.0))
                for _, future in each(crew, (trial,), lambda job: job):
                    value_of(future)
            store = Store.prepare(path, self.identity(), self.decoding.builder, self.tiling, wanted)
            return run(store, partial(self.job, store.write), crew, progress)

    def identity(self) -> dict[str, Any]:
        """What tells this run from another, by names: inputs, options and tiles."""
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
        """What decodes one tile and hands it on, as a dask object."""
        dask = needed("dask", "infer_tiled")
        decode = dask.delayed(_Job(self.decoding, then, tile), name=f"job-{uuid4().hex}", traverse=False)
        # By this name the dashboard shows it.
        name = f"tile-{tile.row}-{tile.column}-{uuid4().hex}"
        return decode(*self.model.pieces(tile.window), dask_key_name=name)

    @cached_property
    def _decoded(self) -> list[list[Any]]:
        rows, columns = self.tiling.shape
        return [[self.job(_keep, self.tiling.tile(i, j)) for j in range(columns)] for i in range(rows)]

    def _joined(self, name: str, tail: tuple[int, ...], dtype: Any) -> Any:
        da = needed("dask.array", "infer_tiled")
        rows = []
        for i, row in enumerate(self._decoded):
            shapes = [(*self.tiling.tile(i, j).core.shape, *tail) for j in range(len(row))]
            parts = [_field(each, name) for each in row]
            blocks = [da.from_delayed(part, shape, dtype=dtype) for part, shape in zip(parts, shapes, strict=True)]
            rows.append(da.concatenate(blocks, axis=1))
        return da.concatenate(rows, axis=0)


@dataclass(frozen=True, eq=False)
class _Job:
    """A function of the pieces of one tile, small enough to send."""

    decoding: Decoding
    then: Callable[[Tile, Any], Any]
    tile: Tile

    def __call__(self, *pieces: Any) -> Any:
        return self.then(self.tile, self.decoding(self.tile, *pieces))


def _keep(_: Tile, decoded: Any) -> Any:
    return decoded


def _field(decoded: Any, name: str) -> Any:
    """One array of a tile that is not decoded yet."""
    return needed("dask", "infer_tiled").delayed(getattr)(decoded, name)
