"""The output of a tiled run: a zarr group that is written tile by tile and records which tiles are done.

The attributes of the group identify the run. Next to the results, the group has a small array ``tiles`` with one number
per tile, written after the tile's chunks. The number is twice the size of these chunks in bytes, plus 1 if the tile did
not converge. The size detects chunks that were truncated or lost later.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.result import entropy_of, variance_of
from locpmap.scale.decoding import Decoded
from locpmap.scale.model import Builder
from locpmap.scale.sources import BAD_CHUNK, BAD_METADATA, needed
from locpmap.scale.tiling import Tile, Tiling

ARRAYS = ("labels", "probability", "variance", "entropy")
TILES = "tiles"
MISSING = 0  # value of missing tiles in the array `tiles`
NO_LABEL = -2  # label of pixels in missing tiles
NODATA = -1  # label of masked pixels


@dataclass(frozen=True)
class Store:
    """The zarr group of a tiled run."""

    path: Path
    tiling: Tiling
    arrays: tuple[str, ...]

    @classmethod
    def prepare(
        cls, path: PathLike, identity: dict[str, Any], builder: Builder, tiling: Tiling, arrays: Sequence[str]
    ) -> Self:
        """Create the group, or open that of an earlier run with the same identity; raise if it is of another run."""
        store = cls(Path(os.path.abspath(checked_path(path))), tiling, tuple(arrays))
        layout = store._layout(builder)
        identity = json.loads(json.dumps({**identity, "arrays": arrays}, default=_plain))  # as it is read back
        if not os.path.exists(store.path):
            store._make(identity, layout)
        store._check(identity, layout)
        return store

    def _layout(self, builder: Builder) -> dict[str, dict[str, Any]]:
        """Return the arguments of each zarr array.

        Fill values never occur in results: zarr does not write a chunk that consists of fill values only.
        """
        *size, n_labels = builder.shape
        layout = {
            TILES: {"shape": self.tiling.shape, "chunks": (1, 1), "dtype": np.dtype(np.uint64), "fill_value": MISSING}
        }
        for name in self.arrays:
            tail = (n_labels,) if name in ("probability", "variance") else ()
            dtype, fill = (np.dtype(np.int16), NO_LABEL) if name == "labels" else (builder.dtype, np.nan)
            chunks = (self.tiling.tile_height, self.tiling.tile_width, *size[2:], *tail)
            layout[name] = {"shape": (*size, *tail), "chunks": chunks, "dtype": dtype, "fill_value": fill}
        if "labels" in layout:
            layout["labels"]["attributes"] = {"nodata": NODATA}
        return layout

    def _check(self, identity: dict[str, Any], layout: dict[str, dict[str, Any]]) -> None:
        try:
            group = self._group("r")
            found = dict(group.attrs["locpmap"]["run"])
        except BAD_METADATA:
            raise InputError(f"{self.path} exists and does not hold a tiled run, expected a new path") from None
        for name, value in identity.items():
            if found.get(name) != value:
                came, wanted = _differing(found.get(name), value)
                raise InputError(
                    f"{self.path} holds another run: its {name} is {came!r}, expected {wanted!r};"
                    " choose another path, or remove it"
                )
        for name, made in layout.items():
            try:
                array = group[name]
                same = all(getattr(array, key) == made[key] for key in ("shape", "chunks", "dtype"))
            except BAD_METADATA:
                same = False
            if not same:
                raise self._damage(name)

    def _damage(self, name: str) -> InputError:
        return InputError(
            f"{self.path} is damaged: its array {name} differs from that of this run; choose another path, or remove it"
        )

    def _make(self, identity: dict[str, Any], layout: dict[str, dict[str, Any]]) -> None:
        """Create the group under a temporary name and rename it, so that the path never holds an incomplete group."""
        zarr = needed("zarr", f"{self.path}")
        if not os.path.isdir(self.path.parent):
            raise InputError(f"{self.path} cannot be written: there is no folder {self.path.parent}")
        draft = self.path.with_name(f".{self.path.name[:40]}.{uuid4().hex[:8]}.part")
        with self._writing():
            try:
                group = zarr.create_group(draft, attributes={"locpmap": {"finished": False, "run": identity}})
                for name, made in layout.items():
                    group.create_array(name, **made)
                draft.rename(self.path)
            except OSError:
                if not os.path.isdir(self.path):  # otherwise another run has created it in the meantime
                    raise
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def write(self, tile: Tile, decoded: Decoded) -> None:
        """Write the chunks of a tile, then mark the tile as done; called by workers."""
        p = decoded.probability
        with self._writing():
            group = self._group("r+")
            for name in self.arrays:
                if name == "labels":
                    values: Any = decoded.labels
                elif name == "probability":
                    values = p
                else:
                    values = entropy_of(p) if name == "entropy" else variance_of(p)
                group[name][tile.core.slices] = values
            group[TILES][tile.row, tile.column] = 2 * self._bytes_of(group, tile) + (not decoded.converged)

    def missing(self) -> list[Tile]:
        """Return the tiles that are not marked as done, or whose chunks differ in size from the recorded size."""
        group, noted = self._group("r"), self._tiles() // 2
        return [tile for tile in self.tiling if not 0 < noted[tile.row, tile.column] == self._bytes_of(group, tile)]

    def _bytes_of(self, group: Any, tile: Tile) -> int:
        """Return the total size of a tile's chunks in bytes, 0 if a chunk is missing."""
        place, sizes = (tile.row, tile.column, 0, 0), []
        for array in (group[name] for name in self.arrays):
            chunk = self.path / array.path / array.metadata.encode_chunk_key(place[: array.ndim])
            try:
                sizes.append(chunk.stat().st_size)
            except OSError:
                return 0
        return sum(sizes)

    def finish(self) -> int:
        """Mark the run as finished in the attributes, and return the number of tiles that did not converge."""
        n_changing = int((self._tiles() % 2).sum())
        self.update(finished=True, not_converged=n_changing)
        return n_changing

    def update(self, **values: Any) -> None:
        """Change values of the attributes."""
        with self._writing():
            group = self._group("r+")
            present = group.attrs["locpmap"]
            if present != {**present, **values}:
                group.attrs["locpmap"] = {**present, **values}

    def _tiles(self) -> Any:
        try:
            return self._group("r")[TILES][:]
        except BAD_CHUNK:
            raise self._damage(TILES) from None

    def _group(self, mode: str) -> Any:
        return needed("zarr", f"{self.path}").open_group(self.path, mode=mode)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Convert an `OSError`, such as that of a full disk, to an `InputError`."""
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror or error}") from None


def _plain(value: Any) -> Any:
    """Return what JSON stores for a value of another type, such as 8 for `np.int64(8)`."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def _differing(came: Any, wanted: Any) -> tuple[Any, Any]:
    """Return two values that differ, with dictionaries reduced to the keys that differ."""
    if not (isinstance(came, dict) and isinstance(wanted, dict)):
        return came, wanted
    names = [name for name in {**came, **wanted} if came.get(name) != wanted.get(name)]
    return {name: came.get(name) for name in names}, {name: wanted.get(name) for name in names}
