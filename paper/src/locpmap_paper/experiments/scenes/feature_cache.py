"""Regions and features of scenes, computed once and cached by the hash of everything they depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.formats import read_array, write_array
from locpmap_paper.cores import available_cores
from locpmap_paper.data.scenes import Scenes
from locpmap_paper.experiments.scenes.context import appearance
from locpmap_paper.experiments.scenes.patch_words import PatchWords, learn_words
from locpmap_paper.experiments.scenes.regions import Numbers, segment
from locpmap_paper.experiments.scenes.split import indices_of
from locpmap_paper.experiments.stages import Stages, digest

VERSION = 1  # of regions, words and features: increase it when their numbers change


@dataclass(frozen=True)
class Vocabulary:
    """The number of words per level, and the number of training scenes that they are learned from."""

    n_words: int = 40
    n_scenes: int = 100
    seed: int = 0


class FeatureCache:
    """Regions (4, H, W) and features (n_atoms, F) of scenes by name; 3 to 5 MB on disk per scene.

    Args:
        scenes: All scenes.
        train: Names of the scenes that the words are learned from, without their labels.
        vocabulary: Settings of the words.
        folder: Folder of the files.
    """

    def __init__(self, scenes: Scenes, train: Sequence[str], vocabulary: Vocabulary, folder: Path) -> None:
        self._scenes, self._folder = scenes, folder
        self._sources = indices_of(scenes, train[: vocabulary.n_scenes])
        self._vocabulary = vocabulary
        pictures = [hash_of(scenes[number][1]) for number in self._sources]
        self._settings = {"version": VERSION, "vocabulary": asdict(vocabulary), "sources": pictures}
        self.keys: dict[str, str] = {}

    def make(self, names: Sequence[str], progress: Callable[[int, int], None]) -> None:
        """Compute missing features on all cores: half a second for a scene of 320 × 240 on two cores.

        Args:
            names: Names of the scenes.
            progress: Function called with (scenes done, number of scenes).
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        words = self._words()
        with ThreadPoolExecutor(available_cores()) as pool:
            jobs = [pool.submit(self._make_one, number, words) for number in indices_of(self._scenes, names)]
            try:
                for done, job in enumerate(jobs, 1):
                    name, key = job.result()
                    self.keys[name] = key
                    progress(done, len(names))
            finally:  # cancel the remaining jobs after an error or interrupt
                pool.shutdown(wait=True, cancel_futures=True)

    def regions(self, name: str) -> Numbers:
        """Return atoms and segments, see :func:`segment`."""
        return read_array(self._path(self.keys[name], "regions"))

    def features(self, name: str) -> npt.NDArray[np.float16]:
        """Return the features of the atoms, see :func:`appearance`."""
        return read_array(self._path(self.keys[name], "features"))

    def _make_one(self, number: int, words: PatchWords) -> tuple[str, str]:
        name, image, _ = self._scenes[number]
        key = digest(self._settings | {"image": hash_of(image)})[:24]
        if not all(self._path(key, kind).exists() for kind in ("regions", "features")):
            regions = segment(image)
            write_array(self._path(key, "regions"), regions)
            write_array(self._path(key, "features"), appearance(image, regions, words).astype(np.float16))
        return name, key

    def _words(self) -> PatchWords:
        def learn() -> dict[str, npt.NDArray[Any]]:
            images = [self._scenes[number][1] for number in self._sources]
            words = learn_words(images, self._vocabulary.n_words, seed=self._vocabulary.seed)
            return {f"{k} {part}": a for k, level in enumerate(words.levels) for part, a in enumerate(level)}

        stored = Stages(self._folder).arrays(f"words-{digest(self._settings)[:24]}", self._settings, learn)
        return PatchWords(
            tuple((stored[f"{k} 0"], stored[f"{k} 1"], stored[f"{k} 2"]) for k in range(len(stored) // 3))
        )

    def _path(self, key: str, kind: str) -> Path:
        return self._folder / f"{key}-{kind}.npy"


def hash_of(array: npt.NDArray[Any]) -> str:
    """Return the sha256 of an array's shape, dtype and content."""
    return hashlib.sha256(f"{array.shape} {array.dtype} ".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()
