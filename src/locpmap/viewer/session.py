"""What the viewer holds between calls: scenes, results of earlier settings, and how far the present run is."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from locpmap.errors import InputError
from locpmap.viewer.decoding import Decoding, Settings, decode
from locpmap.viewer.examples import EXAMPLES
from locpmap.viewer.scenes import Scene, example_scene, pairs, read_scene

MAX_UPLOADS = 4
MAX_SCENES = 4  # of the folder and the examples, in memory
CACHE_BYTES = 1 << 30  # of results; the one just made is always kept


class Superseded(Exception):
    """A run that its page no longer waits for."""


class Gone(InputError):
    """Something that is not there, or no longer."""


class Listed(NamedTuple):
    """A scene that can be opened."""

    id: str
    title: str
    source: str  # "example", "folder" or "upload"


class Session:
    """One folder, one user, any number of pages.

    One decoder runs at a time.  A page that asks anew no longer waits for what it asked before, so that run is stopped.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._uploads: OrderedDict[str, Scene] = OrderedDict()
        self._scenes: OrderedDict[str, Scene] = OrderedDict()
        self._decodings: OrderedDict[str, Decoding] = OrderedDict()
        self._running = threading.Lock()
        self._state = threading.Lock()
        self._turns: dict[str, int] = {}  # of each page, the number of its newest request
        self._progress: dict[str, tuple[int, int]] = {}
        self._n_uploads = 0
        self._closed = False

    def listed(self) -> list[Listed]:
        """All scenes, those of the user first."""
        uploads = [Listed(id, scene.title, "upload") for id, scene in reversed(self._uploads.items())]
        folder = [Listed(f"folder:{stem}", stem, "folder") for stem in self._pairs()]
        examples = [Listed(f"example:{name}", title, "example") for name, (title, *_) in EXAMPLES.items()]
        return [*uploads, *folder, *examples]

    def add(self, scene: Scene) -> str:
        """Keep an upload, in place of the oldest where there are too many; returns its name."""
        with self._state:
            self._n_uploads += 1
            id = f"upload:{self._n_uploads}"
            self._uploads[id] = scene
            if len(self._uploads) > MAX_UPLOADS:
                self._uploads.popitem(last=False)
        return id

    def scene(self, id: str) -> Scene:
        """The scene of that name, read when it is asked for, and again when its files have changed."""
        return self._found(id)[1]

    def decode(self, id: str, settings: Settings, page: str) -> tuple[str, Decoding]:
        """The result for a scene, and the key that it can be asked for again with."""
        settings = settings.relevant
        with self._state:
            self._turns[page] = turn = self._turns.get(page, 0) + 1

        def report(done: int, total: int) -> None:
            if self._closed or self._turns[page] != turn:
                raise Superseded
            self._progress[page] = done, total

        with self._running:
            try:
                report(0, 1)
                version, scene = self._found(id)
                key = hashlib.sha256(f"{version} {settings}".encode()).hexdigest()[:24]
                if key not in self._decodings:
                    self._keep(key, decode(scene, settings, report))
                return key, self.decoding(key)
            finally:
                self._progress.pop(page, None)

    def abandon(self, page: str) -> None:
        """Stop what runs for a page that is gone."""
        with self._state:
            self._turns[page] = self._turns.get(page, 0) + 1

    def close(self) -> None:
        """Stop whatever runs, as soon as it says how far it is."""
        self._closed = True

    def decoding(self, key: str) -> Decoding:
        """A result of before."""
        with self._state:
            if key not in self._decodings:
                raise Gone("That result is no longer in memory: change a setting, or reload the page.")
            self._decodings.move_to_end(key)
            return self._decodings[key]

    def progress(self, page: str) -> tuple[int, int] | None:
        """Steps done and to do of the page's run."""
        return self._progress.get(page)

    def _found(self, id: str) -> tuple[str, Scene]:
        """A scene, and what tells it from what it was before; a name is looked up, never made a path of."""
        if id in self._uploads:
            return id, self._uploads[id]
        kind, _, name = id.partition(":")
        make: Callable[[], Scene]
        if kind == "example" and name in EXAMPLES:
            version, make = id, partial(example_scene, name)
        elif kind == "folder" and name in (found := self._pairs()):
            dates = [path.stat().st_mtime_ns for path in found[name]]
            version, make = f"{id} {dates}", partial(read_scene, name, *found[name])
        else:
            raise Gone(f"There is no scene {id[:80]!r} any more.")
        with self._state:
            if version not in self._scenes:
                self._scenes[version] = make()
                if len(self._scenes) > MAX_SCENES:
                    self._scenes.popitem(last=False)
            self._scenes.move_to_end(version)
            return version, self._scenes[version]

    def _keep(self, key: str, decoding: Decoding) -> None:
        with self._state:
            self._decodings[key] = decoding
            while len(self._decodings) > 1 and sum(each.nbytes for each in self._decodings.values()) > CACHE_BYTES:
                self._decodings.popitem(last=False)

    def _pairs(self) -> dict[str, tuple[Path, Path]]:
        """Of the folder, if it is there: one that vanished has no scenes any more."""
        try:
            return {} if self._folder is None else pairs(self._folder)
        except OSError:
            return {}
