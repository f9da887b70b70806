"""Which scenes are learned from and which are for the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from locpmap.errors import InputError, whole_number
from locpmap_paper.data.scenes import Scene, Scenes

N_TRAIN = 600


@dataclass(frozen=True)
class Split:
    """Names of scenes; none is in both parts, none twice."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        names = (*self.train, *self.test)
        if len(set(names)) < len(names):
            raise InputError("the split names a scene more than once, expected every name in one part, once")


def split_scenes(names: Sequence[str], n_train: int = N_TRAIN, *, seed: int = 0) -> Split:
    """The first ``n_train`` of a seeded permutation of the names, and the rest.

    >>> split_scenes(["a", "b", "c"], 2)
    Split(train=('c', 'a'), test=('b',))
    """
    n_train = whole_number("n_train", n_train, 1, len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    return Split(tuple(names[number] for number in order[:n_train]), tuple(names[number] for number in order[n_train:]))


def numbers_of(scenes: Scenes, names: Sequence[str]) -> list[int]:
    """The numbers of the named scenes."""
    number = {name: k for k, name in enumerate(scenes.names)}
    for name in names:
        if name not in number:
            raise InputError(f"names holds {name!r}, but there is no scene {name!r} among the {len(scenes)} scenes")
    return [number[name] for name in names]


def named(scenes: Scenes, names: Sequence[str]) -> list[Scene]:
    """The scenes of those names, decoded, in that order."""
    return [scenes[number] for number in numbers_of(scenes, names)]
