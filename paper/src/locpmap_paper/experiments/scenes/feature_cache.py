"""Regions and features of scenes, made once and kept in a folder under the hash of all that they depend on."""

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
from locpmap_paper.experiments.scenes.split import numbers_of
from locpmap_paper.experiments.stages import Stages, digest

VERSION = 1  # of the modules that make regions, words and features: raised when any of them would give other numbers


@dataclass(frozen=True)
class Vocabulary:
    """The words that are learned: how many per level, from the first so many scenes to learn from."""

    n_words: int = 40
    n_scenes: int = 100
    seed: int = 0


class FeatureCache:
    """Regions (4, H, W) and features (n_atoms, F) of scenes by name; 3 to 5 MB on disk for a scene.

    Args:
        scenes: All scenes.
        train: Names of those that the words are learned from, without their labels.
        vocabulary: How.
        folder: Where files are kept.
    """

    def __init__(self, scenes: Scenes, train: Sequence[str], vocabulary: Vocabulary, folder: Path) -> None:
        self._scenes, self._folder = scenes, folder
        self._sources = numbers_of(scenes, train[: vocabulary.n_scenes])
        self._vocabulary = vocabulary
        pictures = [hash_of(scenes[number][1]) for number in self._sources]
        self._settings = {"version": VERSION, "vocabulary": asdict(vocabulary), "sources": pictures}
        self.keys: dict[str, str] = {}

    def make(self, names: Sequence[str], tell: Callable[[int, int], None]) -> None:
        """Make what is missing, on all cores: half a second for a scene of 320 × 240 on two.

        Args:
            names: Of scenes.
            tell: Called with (scenes done, scenes in all).
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        words = self._words()
        with ThreadPoolExecutor(available_cores()) as pool:
            jobs = [pool.submit(self._make_one, number, words) for number in numbers_of(self._scenes, names)]
            try:
                for done, job in enumerate(jobs, 1):
                    name, key = job.result()
                    self.keys[name] = key
                    tell(done, len(names))
            finally:  # after an error or an interrupt nobody waits for the rest
                pool.shutdown(wait=True, cancel_futures=True)

    def regions(self, name: str) -> Numbers:
        """Atoms and segments, as :func:`segment` numbers them."""
        return read_array(self._path(self.keys[name], "regions"))

    def features(self, name: str) -> npt.NDArray[np.float16]:
        """What :func:`appearance` says of the atoms."""
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

        kept = Stages(self._folder).arrays(f"words-{digest(self._settings)[:24]}", self._settings, learn)
        return PatchWords(tuple((kept[f"{k} 0"], kept[f"{k} 1"], kept[f"{k} 2"]) for k in range(len(kept) // 3)))

    def _path(self, key: str, kind: str) -> Path:
        return self._folder / f"{key}-{kind}.npy"


def hash_of(array: npt.NDArray[Any]) -> str:
    """Of shape and content."""
    return hashlib.sha256(f"{array.shape} {array.dtype} ".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()
