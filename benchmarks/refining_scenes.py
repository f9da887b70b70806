"""Scenes with the logits, sharp and coarse, of a network that was not trained on them."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
STRIDES = (1, 8, 16)


@dataclass(frozen=True)
class SceneWithLogits:
    """A scene: image (H, W, 3) uint8, logits (H, W, 8), and labels (H, W), -1 at void pixels."""

    image: npt.NDArray[np.uint8]
    logits: Array
    labels: npt.NDArray[np.int64]

    def coarse(self, stride: int) -> Array:
        """Return the logits at a stride, as of a network without an upsampling head: means over cells."""
        if stride == 1:
            return self.logits
        height, width = (max(1, round(n / stride)) for n in self.labels.shape)
        rows, columns = (np.arange(n) * size // n for n, size in zip((height, width), self.labels.shape, strict=True))
        sums = np.add.reduceat(np.add.reduceat(self.logits, rows, axis=0, dtype=np.float64), columns, axis=1)
        n_rows, n_columns = (
            np.diff([*starts, size]) for starts, size in zip((rows, columns), self.labels.shape, strict=True)
        )
        return (sums / (n_rows[:, None] * n_columns)[..., None]).astype(np.float32)


def scenes_of(part: str, data: Path, network: Path, cache: Path, limit: int | None = None) -> list[SceneWithLogits]:
    """Return scenes of the split of `locpmap reproduce stanford`, seed 0, with the network's logits.

    Photographs that occur twice in the data are excluded: the network may have been trained on the other copy.

    Args:
        part: "held_out" or "test"; the network was trained on neither.
        data: Folder of the data sets.
        network: Network trained on the part "fit", as `locpmap_paper.experiments.scenes.networks` saves it.
        cache: Folder in which logits are cached in half precision, by the hash of the network.
        limit: Maximum number of scenes.
    """
    from locpmap_paper.data.scenes import TWINS
    from locpmap_paper.experiments.scenes.experiment import STANFORD

    loaded = STANFORD.load(data)
    case = STANFORD.case(loaded, "pretrained", 0)
    folder = cache / f"logits-{hashlib.sha256(network.read_bytes()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    twice = {name for pair in TWINS for name in pair}
    scenes = (loaded.scenes[int(number)] for number in getattr(case, part).inputs)
    predict = _predictor(network)
    return [_scene(scene, folder, predict) for scene in islice((s for s in scenes if s[0] not in twice), limit)]


def _scene(
    scene: tuple[str, npt.NDArray[np.uint8], npt.NDArray[np.int8]],
    folder: Path,
    predict: Callable[[npt.NDArray[np.uint8]], Array],
) -> SceneWithLogits:
    from locpmap.formats.arrays import read_array, write_array

    name, image, labels = scene
    path = folder / f"{name}.npy"
    if not path.exists():
        write_array(path, predict(image).astype(np.float16))
    return SceneWithLogits(image, read_array(path).astype(np.float32), labels.astype(np.int64))


def _predictor(path: Path) -> Callable[[npt.NDArray[np.uint8]], Array]:
    """Return the network as a function from an image to logits; it is loaded in the first call."""
    from locpmap_paper.experiments.scenes.networks import load_network, predict_logits

    loaded: list[Any] = []

    def predict(image: npt.NDArray[np.uint8]) -> Array:
        if not loaded:
            loaded.append(load_network(path))
        return predict_logits(loaded[0], image)

    return predict


def near_boundaries(labels: npt.NDArray[np.int64], distance: int) -> npt.NDArray[np.int64]:
    """Return the labels at pixels closer than ``distance`` to a boundary between true labels, and -1 elsewhere."""
    from scipy.ndimage import distance_transform_edt

    change = np.zeros(labels.shape, bool)
    for first, second in _neighbours():
        differ = (labels[first] != labels[second]) & (labels[first] >= 0) & (labels[second] >= 0)
        change[first] |= differ
        change[second] |= differ
    if not change.any():
        return np.full_like(labels, -1)
    return np.where(distance_transform_edt(~change) < distance, labels, -1)


def _neighbours() -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    everything = slice(None)
    yield (everything, slice(None, -1)), (everything, slice(1, None))
    yield (slice(None, -1), everything), (slice(1, None), everything)
