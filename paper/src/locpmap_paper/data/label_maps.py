"""What the loaders of binary images return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SEED = 0  # of the permutation that splits a data set without a split of its own

Maps = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LabelMaps:
    """True label maps, 1 = foreground.

    Args:
        name: of the data set.
        train: (N, H, W) uint8 in {0, 1}.
        test: (M, H, W), likewise.
        files: (name, sha256, bytes) of every file that was read.
    """

    name: str
    train: Maps
    test: Maps
    files: tuple[tuple[str, str, int], ...]


def permuted_split(maps: Maps, n_train: int) -> tuple[Maps, Maps]:
    """The first ``n_train`` of a permutation that is the same on every call, and the rest."""
    order = np.random.default_rng(SEED).permutation(len(maps))
    return maps[order[:n_train]], maps[order[n_train:]]
