"""Scenes with what a network says of them that never saw them, sharp and coarse."""

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
    """One scene: image (H, W, 3) uint8, logits (H, W, 8), labels (H, W), -1 where void."""

    image: npt.NDArray[np.uint8]
    logits: Array
    labels: npt.NDArray[np.int64]

    def coarse(self, stride: int) -> Array:
        """The logits at a stride, as a network without an upsampling head would give them: means over cells."""
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
    """Scenes of the split of `locpmap reproduce stanford`, seed 0: "held_out" or "test", neither seen by the network.

    Photographs that are in the data twice are left out: the network may have seen the other.

    Args:
        part: The part.
        data: The folder with the data.
        network: A network that learned from the part "fit", as `locpmap_paper.experiments.scenes.networks` saves it.
        cache: Where its logits are kept, in half precision, under the network's hash.
        limit: Only so many.
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
    """The network as a function, loaded when it is first asked."""
    from locpmap_paper.experiments.scenes.networks import load_network, predict_logits

    loaded: list[Any] = []

    def predict(image: npt.NDArray[np.uint8]) -> Array:
        if not loaded:
            loaded.append(load_network(path))
        return predict_logits(loaded[0], image)

    return predict


def near_boundaries(labels: npt.NDArray[np.int64], distance: int) -> npt.NDArray[np.int64]:
    """The labels within so many pixels of where true labels change, -1 elsewhere."""
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
