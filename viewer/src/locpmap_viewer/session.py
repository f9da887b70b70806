"""State of the viewer between requests: scenes, cached results and progress."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from locpmap.errors import InputError
from locpmap.refining import Refiner
from locpmap_viewer.decoding import MAX_SECONDS, Decoding, Settings, decode
from locpmap_viewer.examples import EXAMPLES
from locpmap_viewer.scenes import Files, Scene, example_scene, pairs, printable, read_scene

MAX_UPLOADS = 4
MAX_SCENES = 4  # scenes of the folder and examples in memory
CACHE_BYTES = 1 << 30  # memory for results; the newest is always cached
FEW = 8  # samples: fewer do not tell how long many will take


class Superseded(Exception):
    """Raised in a run whose page no longer waits for it."""


class NotFoundError(InputError):
    """A scene or result that does not exist, or no longer exists."""


class Listed(NamedTuple):
    """Entry of the list of scenes."""

    id: str
    title: str
    source: str  # "example", "folder" or "upload"


class Progress(NamedTuple):
    """Progress of a run, for the page."""

    done: int
    total: int
    seconds: float  # since the run began
    left: float | None  # estimated remaining seconds
    bound: bool  # whether the decoder may converge sooner
    first: bool  # whether the decoder has not run before, so that its kernels may have to be compiled


@dataclass
class _Run:
    """A run of a decoder, with its progress and an estimate of its duration from earlier runs."""

    settings: Settings
    began: float
    usual: float | None  # seconds that it takes, from an earlier run on the same scene
    first: bool
    reports: list[tuple[int, float]] = field(default_factory=list)  # (done, seconds since the beginning)
    total: int = 1

    def report(self, done: int, total: int) -> None:
        """Record progress."""
        self.total = total
        self.reports.append((done, time.monotonic() - self.began))

    def progress(self) -> Progress:
        """Return the progress; a decoder that may converge early usually takes as long as in its last run."""
        seconds, sampling = time.monotonic() - self.began, self.settings.method == "locpmap"
        whole, bound, done = self.usual, False, 0
        if self.reports:
            done, last = self.reports[-1]
            if whole is None or sampling or seconds > whole:
                early, since = self.reports[0] if len(self.reports) > 1 else (0, 0.0)  # later reports exclude the model
                whole, bound = last + (self.total - done) * (last - since) / max(1, done - early), not sampling
                whole = min(whole, MAX_SECONDS) if bound else whole
        left = None if whole is None else max(0.0, whole - seconds)
        return Progress(done, self.total, seconds, left, bound, self.first)


class Session:
    """State for one user with any number of pages.  One decoder runs at a time; a new request stops the page's run."""

    def __init__(self, folder: Path | Files | None = None, refiner: Refiner | None = None) -> None:
        self._folder = folder
        self.refiner = refiner
        self._uploads: OrderedDict[str, Scene] = OrderedDict()
        self._scenes: OrderedDict[str, Scene] = OrderedDict()
        self._decodings: OrderedDict[str, Decoding] = OrderedDict()
        self._running = threading.Lock()
        self._state = threading.Lock()
        self._requests: dict[str, int] = {}  # page: number of its newest request
        self._runs: dict[str, _Run] = {}  # page: its current run
        self._paces: dict[tuple[str, str, str], float] = {}  # scene, method and blocks: seconds, of LocPMAP per sample
        self._ran: set[tuple[str, str]] = set()  # methods and blocks with compiled kernels
        self._n_uploads = 0
        self._closed = False

    def listed(self) -> list[Listed]:
        """Return all scenes, those of the user first."""
        uploads = [Listed(id, scene.title, "upload") for id, scene in reversed(self._uploads.items())]
        folder = [Listed(f"folder:{stem}", stem, "folder") for stem in self._pairs()]
        examples = [Listed(f"example:{name}", title, "example") for name, (title, *_) in EXAMPLES.items()]
        return [*uploads, *folder, *examples]

    def add(self, scene: Scene) -> str:
        """Store an upload and return its id; the oldest is dropped if there are more than ``MAX_UPLOADS``."""
        with self._state:
            self._n_uploads += 1
            id = f"upload:{self._n_uploads}"
            self._uploads[id] = scene
            if len(self._uploads) > MAX_UPLOADS:
                self._uploads.popitem(last=False)
        return id

    def scene(self, id: str) -> Scene:
        """Return a scene; files are read on first use, and again after they have changed."""
        return self._found(id)[1]

    def decode(
        self, id: str, settings: Settings, page: str, gone: threading.Event | None = None
    ) -> tuple[str, Decoding]:
        """Return the key of the result in the cache, and the result.  ``gone`` is set when the page was closed."""
        settings = settings.relevant
        with self._state:
            self._requests[page] = request = self._requests.get(page, 0) + 1

        def check() -> None:
            if self._closed or (gone is not None and gone.is_set()) or self._requests[page] != request:
                raise Superseded

        while not self._running.acquire(timeout=0.05):
            check()
        try:
            check()
            version, scene = self._found(id)
            key = hashlib.sha256(f"{version} {settings}".encode()).hexdigest()[:24]
            if key not in self._decodings:
                self._cache(key, self._run(version, scene, settings, page, check))
            return key, self.decoding(key)
        finally:
            self._running.release()

    def _run(self, version: str, scene: Scene, settings: Settings, page: str, check: Callable[[], None]) -> Decoding:
        kernel, n = (settings.method, settings.blocks), settings.n_samples if settings.method == "locpmap" else 1
        pace = self._paces.get((version, *kernel))
        self._runs[page] = run = _Run(
            settings, time.monotonic(), None if pace is None else pace * n, kernel not in self._ran
        )

        def report(done: int, total: int) -> None:
            check()
            run.report(done, total)

        try:
            found = decode(scene, settings, report)
        finally:
            del self._runs[page]
        if n > FEW or settings.method != "locpmap":
            compiling = run.reports[0][1] if run.first and run.reports else 0.0  # at most
            self._paces[version, *kernel] = (found.seconds - compiling) / n
        self._ran.add(kernel)
        return found

    def close(self) -> None:
        """Stop the current run at its next progress report."""
        self._closed = True

    def decoding(self, key: str) -> Decoding:
        """Return a cached result."""
        with self._state:
            if key not in self._decodings:
                raise NotFoundError("That result is no longer in memory: change a setting or reload the page.")
            self._decodings.move_to_end(key)
            return self._decodings[key]

    def progress(self, page: str) -> Progress | None:
        """Return the progress of the page's run, or None."""
        run = self._runs.get(page)
        return None if run is None else run.progress()

    def _found(self, id: str) -> tuple[str, Scene]:
        """Return the scene with a version that changes with its files.  Ids are never used as paths."""
        if id in self._uploads:
            return id, self._uploads[id]
        kind, _, name = id.partition(":")
        make: Callable[[], Scene]
        if kind == "example" and name in EXAMPLES:
            version, make = id, partial(example_scene, name)
        elif kind == "folder" and name in (found := self._pairs()):
            files = found[name]
            version, make = f"{id} {files.dates}", partial(read_scene, name, files, refiner=self.refiner)
        else:
            raise NotFoundError(f"There is no scene {id[:80]!r}, or no longer.")
        with self._state:
            if version not in self._scenes:
                self._scenes[version] = make()
                if len(self._scenes) > MAX_SCENES:
                    self._scenes.popitem(last=False)
            self._scenes.move_to_end(version)
            return version, self._scenes[version]

    def _cache(self, key: str, decoding: Decoding) -> None:
        with self._state:
            self._decodings[key] = decoding
            while len(self._decodings) > 1 and sum(each.nbytes for each in self._decodings.values()) > CACHE_BYTES:
                self._decodings.popitem(last=False)

    def _pairs(self) -> dict[str, Files]:
        """Return the pairs of the folder; none if it cannot be read."""
        if isinstance(self._folder, Files):  # of one image
            return {printable(self._folder.image.stem): self._folder}
        try:
            return {} if self._folder is None else pairs(self._folder)
        except OSError:
            return {}
