"""A run over the missing tiles of a store."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from locpmap.scale.store import Store
from locpmap.scale.tiling import Tile
from locpmap.scale.workers import Workers, each, value_of

Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Summary:
    """Summary of a tiled run, returned by :meth:`locpmap.TiledResult.write`.

    Attributes:
        tiles (int): Number of tiles of the raster.
        kept (int): Number of tiles that an earlier run had completed.
        pixels (int): Number of pixels decoded by this run, without halos.
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


def run(store: Store, job_of: Callable[[Tile], Any], crew: Workers, progress: Progress | None) -> Summary:
    """Decode and write the missing tiles of a store."""
    began = time.perf_counter()
    total, missing = math.prod(store.tiling.shape), store.missing()
    if missing:
        store.begin()
    kept = done = total - len(missing)
    pixels = 0
    with closing(each(crew, missing, job_of)) as ended:
        for tile, future in ended:
            value_of(future)
            done, pixels = done + 1, pixels + math.prod(tile.core.shape)
            if progress is not None:
                progress(done, total, pixels / (time.perf_counter() - began))
    not_converged = store.finish()
    return Summary(total, kept, pixels, time.perf_counter() - began, not_converged)
