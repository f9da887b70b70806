"""A zarr group that is filled tile by tile, and knows which tiles are done.

Its attributes say what is being written.  Beside the results it has a small array ``tiles``, with a number for each
tile that is written after all its chunks: 1, or 2 where something was still changing at the last sweep.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.result import entropy_of, variance_of
from locpmap.scale.decoding import Decoded
from locpmap.scale.model import Builder
from locpmap.scale.sources import needed
from locpmap.scale.tiling import Tile, Tiling

ARRAYS = ("labels", "probability", "variance", "entropy")
TILES = "tiles"
MISSING, CONVERGED, CHANGING = range(3)  # what the array of tiles holds


@dataclass(frozen=True)
class Store:
    """The output of a run."""

    path: Path
    tiling: Tiling
    arrays: tuple[str, ...]

    @classmethod
    def prepare(
        cls, path: PathLike, identity: dict[str, Any], builder: Builder, tiling: Tiling, arrays: Sequence[str]
    ) -> Store:
        """Make the group, or find that an earlier run of the same identity has made it."""
        store = cls(Path(os.path.abspath(checked_path(path))), tiling, tuple(arrays))
        identity = {**identity, "arrays": list(arrays)}
        if store.path.exists():
            store._check(identity)
        else:
            store._make(identity, builder)
        return store

    def _check(self, identity: dict[str, Any]) -> None:
        try:
            found = self._group("r").attrs["locpmap"]["run"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{self.path} is there and was not begun by such a run, expected a new name") from None
        for name, value in identity.items():
            if found.get(name) != value:
                raise InputError(
                    f"{self.path} holds another run: its {name} is {_short(found.get(name))}, expected"
                    f" {_short(value)}; choose another name, or remove it"
                )

    def _make(self, identity: dict[str, Any], builder: Builder) -> None:
        """All of it beside its place, and then there, so that nothing half-made is ever found."""
        zarr = needed("zarr", f"{self.path}")
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path} cannot be written: there is no folder {self.path.parent}")
        draft = self.path.with_name(f".{self.path.name[:40]}.{uuid4().hex[:8]}.part")
        height, width, n_labels = builder.shape
        chunk = (self.tiling.tile_height, self.tiling.tile_width)
        try:
            group = zarr.create_group(draft, attributes={"locpmap": {"finished": False, "run": identity}})
            grid = {"shape": self.tiling.shape, "chunks": (1, 1), "dtype": np.uint8}
            group.create_array(TILES, **grid, fill_value=MISSING)
            for name in self.arrays:
                tail = (n_labels,) if name in ("probability", "variance") else ()
                dtype, fill = (np.dtype(np.int16), -1) if name == "labels" else (builder.dtype, np.nan)
                group.create_array(
                    name, shape=(height, width, *tail), chunks=(*chunk, *tail), dtype=dtype, fill_value=fill
                )
            draft.rename(self.path)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def write(self, tile: Tile, decoded: Decoded) -> None:
        """The chunks of a tile, and then the note that they are there; called by workers."""
        group, p = self._group("r+"), decoded.probability
        for name in self.arrays:
            if name == "labels":
                values: Any = decoded.labels
            elif name == "probability":
                values = p
            else:
                values = entropy_of(p) if name == "entropy" else variance_of(p)
            group[name][tile.core.slices] = values
        group[TILES][tile.row, tile.column] = CONVERGED if decoded.converged else CHANGING

    def missing(self) -> list[Tile]:
        """The tiles that are still to be done, in order."""
        return [self.tiling.tile(int(i), int(j)) for i, j in np.argwhere(self._tiles() == MISSING)]

    def finish(self) -> int:
        """Say in the attributes that all is there; returns the number of tiles that have not converged."""
        n_changing = int((self._tiles() == CHANGING).sum())
        group = self._group("r+")
        group.attrs["locpmap"] = {**group.attrs["locpmap"], "finished": True, "not_converged": n_changing}
        return n_changing

    def _tiles(self) -> Any:
        return self._group("r")[TILES][:]

    def _group(self, mode: str) -> Any:
        return needed("zarr", f"{self.path}").open_group(self.path, mode=mode)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
