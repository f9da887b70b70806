"""The return type of the loaders of binary images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SEED = 0  # of the permutation that splits data sets without a published split

Maps = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LabelMaps:
    """True label maps with 1 for foreground.

    Attributes:
        name (str): Name of the data set.
        train (numpy.ndarray): Training maps (N, H, W), uint8 in {0, 1}.
        test (numpy.ndarray): Test maps (M, H, W), uint8 in {0, 1}.
        files (tuple): (name, sha256, bytes) of every file that was read.
    """

    name: str
    train: Maps
    test: Maps
    files: tuple[tuple[str, str, int], ...]


def permuted_split(maps: Maps, n_train: int) -> tuple[Maps, Maps]:
    """Split the maps by a fixed permutation into `n_train` training maps and the remaining test maps."""
    order = np.random.default_rng(SEED).permutation(len(maps))
    return maps[order[:n_train]], maps[order[n_train:]]
