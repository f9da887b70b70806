"""A run over all tiles of a store: what is missing is done, and the end is noted."""

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
    """How a run ended."""

    tiles: int  # in all
    kept: int  # of them done before
    pixels: int  # decoded by this run
    seconds: float
    not_converged: int  # tiles in whose windows a site was still changing at the last sweep

    @property
    def pixels_per_second(self) -> float:
        """Of this run."""
        return self.pixels / self.seconds if self.seconds > 0 else 0.0


def run(store: Store, job_of: Callable[[Tile], Any], crew: Workers, progress: Progress | None) -> Summary:
    """Do the missing tiles of a store."""
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
