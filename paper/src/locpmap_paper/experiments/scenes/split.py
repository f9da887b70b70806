"""The split of scenes into training and test scenes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from locpmap.errors import InputError, whole_number
from locpmap_paper.data.scenes import Scene, Scenes

N_TRAIN = 600


@dataclass(frozen=True)
class Split:
    """Names of training and test scenes, without duplicates."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        names = (*self.train, *self.test)
        if len(set(names)) < len(names):
            raise InputError("the split contains a scene more than once, expected every name once")


def split_scenes(names: Sequence[str], n_train: int = N_TRAIN, *, seed: int = 0) -> Split:
    """Split a seeded permutation of the names into the first ``n_train`` and the rest.

    >>> split_scenes(["a", "b", "c"], 2)
    Split(train=('c', 'a'), test=('b',))
    """
    n_train = whole_number("n_train", n_train, 1, len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    return Split(tuple(names[number] for number in order[:n_train]), tuple(names[number] for number in order[n_train:]))


def indices_of(scenes: Scenes, names: Sequence[str]) -> list[int]:
    """Return the indices of the scenes with these names."""
    number = {name: k for k, name in enumerate(scenes.names)}
    for name in names:
        if name not in number:
            raise InputError(f"names contains {name!r}, expected names of the {len(scenes)} scenes")
    return [number[name] for name in names]


def named(scenes: Scenes, names: Sequence[str]) -> list[Scene]:
    """Return the decoded scenes with these names, in this order."""
    return [scenes[number] for number in indices_of(scenes, names)]
