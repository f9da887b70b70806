"""A zarr group that is filled tile by tile, and knows which tiles are done.

Its attributes say what is being written.  Next to the results it has a small array ``tiles`` with a number for each
tile, written after all its chunks: twice the bytes of these chunks, plus 1 where a site was still changing at the last
sweep.  The bytes tell whether a chunk was cut off or lost since.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from locpmap.scale.sources import BAD_CHUNK, BAD_METADATA, needed
from locpmap.scale.tiling import Tile, Tiling

ARRAYS = ("labels", "probability", "variance", "entropy")
TILES = "tiles"
MISSING = 0  # in the array of tiles
NO_LABEL = -2  # where labels are not written yet
NODATA = -1  # the label of masked pixels


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
        identity, layout = _plain({**identity, "arrays": arrays}), store._layout(builder)
        if not os.path.exists(store.path):
            store._make(identity, layout)
        store._check(identity, layout)
        return store

    def _layout(self, builder: Builder) -> dict[str, dict[str, Any]]:
        """Return the arguments of each zarr array.  No tile is full of a fill value, which zarr would not write."""
        height, width, n_labels = builder.shape
        layout = {
            TILES: {"shape": self.tiling.shape, "chunks": (1, 1), "dtype": np.dtype(np.uint64), "fill_value": MISSING}
        }
        for name in self.arrays:
            tail = (n_labels,) if name in ("probability", "variance") else ()
            dtype, fill = (np.dtype(np.int16), NO_LABEL) if name == "labels" else (builder.dtype, np.nan)
            chunks = (self.tiling.tile_height, self.tiling.tile_width, *tail)
            layout[name] = {"shape": (height, width, *tail), "chunks": chunks, "dtype": dtype, "fill_value": fill}
        if "labels" in layout:
            layout["labels"]["attributes"] = {"nodata": NODATA}
        return layout

    def _check(self, identity: dict[str, Any], layout: dict[str, dict[str, Any]]) -> None:
        try:
            group = self._group("r")
            found = dict(group.attrs["locpmap"]["run"])
        except BAD_METADATA:
            raise InputError(f"{self.path} is there and was not begun by such a run, expected a new name") from None
        for name, value in identity.items():
            if found.get(name) != value:
                came, wanted = _apart(found.get(name), value)
                raise InputError(
                    f"{self.path} holds another run: its {name} is {came!r}, expected {wanted!r};"
                    " choose another name, or remove it"
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
            f"{self.path} is damaged: its array {name} is not as this run makes it; choose another name, or remove it"
        )

    def _make(self, identity: dict[str, Any], layout: dict[str, dict[str, Any]]) -> None:
        """Make the group under a temporary name and rename it, so that an incomplete group is never found."""
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
                if not os.path.isdir(self.path):  # otherwise another run has come first
                    raise
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def write(self, tile: Tile, decoded: Decoded) -> None:
        """Write the chunks of a tile, and then the note that they are there; called by workers."""
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
        """Return the tiles that are still to be done: those without the note, or whose chunks are not as noted.

        The sizes of chunks are compared; chunks are not read.
        """
        group, noted = self._group("r"), self._tiles() // 2
        return [tile for tile in self.tiling if not 0 < noted[tile.row, tile.column] == self._bytes_of(group, tile)]

    def _bytes_of(self, group: Any, tile: Tile) -> int:
        """Return the bytes of a tile's chunks, 0 where one is missing."""
        place, sizes = (tile.row, tile.column, 0), []
        for array in (group[name] for name in self.arrays):
            chunk = self.path / array.path / array.metadata.encode_chunk_key(place[: array.ndim])
            try:
                sizes.append(chunk.stat().st_size)
            except OSError:
                return 0
        return sum(sizes)

    def begin(self) -> None:
        """Say in the attributes that something is missing, if only what an earlier run had finished and was lost."""
        self._say(finished=False)

    def finish(self) -> int:
        """Say in the attributes that all is there; returns the number of tiles that have not converged."""
        n_changing = int((self._tiles() % 2).sum())
        self._say(finished=True, not_converged=n_changing)
        return n_changing

    def _say(self, **what: Any) -> None:
        with self._writing():
            group = self._group("r+")
            said = group.attrs["locpmap"]
            if said != {**said, **what}:
                group.attrs["locpmap"] = {**said, **what}

    def _tiles(self) -> Any:
        try:
            return self._group("r")[TILES][:]
        except BAD_CHUNK:
            raise self._damage(TILES) from None

    def _group(self, mode: str) -> Any:
        return needed("zarr", f"{self.path}").open_group(self.path, mode=mode)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn a full disk and the like into one sentence."""
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror or error}") from None


def _plain(value: Any) -> Any:
    """Return the value as JSON returns it, to compare runs: 8 for `np.int64(8)`, a list for a tuple."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def _apart(came: Any, wanted: Any) -> tuple[Any, Any]:
    """Return two entries that differ; of dictionaries, only the keys that differ."""
    if not (isinstance(came, dict) and isinstance(wanted, dict)):
        return came, wanted
    names = [name for name in {**came, **wanted} if came.get(name) != wanted.get(name)]
    return {name: came.get(name) for name in names}, {name: wanted.get(name) for name in names}
