"""Scores of one method on one cell, kept in a file, from which an interrupted run resumes."""

import json
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.arena.cells import KINDS, N_SHIFTED, SHIFTED, Cell, Seen, images_of
from benchmarks.arena.methods import METHODS, Given
from locpmap.measuring.quantities import components
from locpmap.refining.scoring import METRICS, Score, difference, score, total

Array = npt.NDArray[Any]
BOUNDARY = 3  # pixels or voxels
IOU, BOUNDARY_IOU, PER_IMAGE, ECE, NLL, COMPONENTS = (
    "IoU",
    "boundary IoU",
    "IoU per image",
    "ECE",
    "NLL",
    "components",
)
HIGHER = (IOU, BOUNDARY_IOU, PER_IMAGE)  # is better
MEASURES = (IOU, BOUNDARY_IOU, PER_IMAGE, ECE, NLL, COMPONENTS)


def measure(
    cell: Cell, names: Sequence[str], part: str, data: Path, networks: Path, work: Path, limit: int | None
) -> None:
    """Score methods on a part of a cell's data and write one file for each; existing files are kept.

    On the part "held_out", methods are fitted to one half of the images and scored on the other. On the part
    "shifted", they are fitted to one kind of image and scored on others.
    """
    missing = [name for name in names if not path_of(work, part, cell, name).exists()]
    if not missing:
        return
    folders = (data, networks, work)
    if part == SHIFTED:
        first = KINDS[cell.dataset]
        held_out = list(images_of(cell, "held_out", *folders, wanted=first))
        judged = list(images_of(cell, "test", *folders, limit or N_SHIFTED, lambda *image: not first(*image)))
    else:
        held_out = list(images_of(cell, "held_out", *folders))
        if part == "held_out":
            held_out, judged = held_out[::2], held_out[1::2][:limit]
        else:
            judged = list(images_of(cell, part, *folders, limit))
    for name in missing:
        began = time.perf_counter()
        method = METHODS[name](Given(cell, held_out, judged, work / "weights"))
        fitted = time.perf_counter() - began
        rows = [scored(method, seen) for seen in judged]
        found = {
            "fit_seconds": fitted,
            "seconds": float(np.median([row.pop("seconds") for row in rows])),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "images": rows,
        }
        path = path_of(work, part, cell, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".part").write_text(json.dumps(found))
        path.with_suffix(".part").rename(path)


def path_of(work: Path, part: str, cell: Cell, name: str) -> Path:
    """Return the file of a method's scores on a cell."""
    return work / part / str(cell) / f"{name.replace(', ', '_').replace(' ', '-')}.json"


def scored(method: Any, seen: Seen) -> dict[str, Any]:
    """Score the probabilities and labels of one image, in numbers that JSON can represent."""
    began = time.perf_counter()
    probability, labels = (np.asarray(one) for one in method(seen))
    seconds = time.perf_counter() - began
    near = near_boundaries(seen.labels, BOUNDARY)
    return {
        "seconds": seconds,
        "whole": _plain(score(probability, seen.labels, labels)),
        "near": _plain(score(probability, near, labels)),
        COMPONENTS: int(components(labels, probability.shape[-1]).sum()),
    }


def near_boundaries(labels: npt.NDArray[np.int64], distance: int) -> npt.NDArray[np.int64]:
    """Return the labels at pixels closer than ``distance`` to a boundary between true labels, and -1 elsewhere."""
    from scipy.ndimage import distance_transform_edt

    change = np.zeros(labels.shape, bool)
    for first, second in _neighbours(labels.ndim):
        differ = (labels[first] != labels[second]) & (labels[first] >= 0) & (labels[second] >= 0)
        change[first] |= differ
        change[second] |= differ
    if not change.any():
        return np.full_like(labels, -1)
    return np.where(distance_transform_edt(~change) < distance, labels, -1)


def _neighbours(n_axes: int) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    for axis in range(n_axes):
        before, after = [slice(None)] * n_axes, [slice(None)] * n_axes
        before[axis], after[axis] = slice(None, -1), slice(1, None)
        yield tuple(before), tuple(after)


def _plain(found: Score) -> dict[str, Any]:
    return {
        "confusion": found.confusion.tolist(),
        "bins": found.bins.tolist(),
        "loss": found.loss,
        "n_pixels": found.n_pixels,
    }


def _score(plain: dict[str, Any]) -> Score:
    confusion, bins = (np.array(plain[name], np.float64) for name in ("confusion", "bins"))
    return Score(confusion, bins, plain["loss"], plain["n_pixels"])


class Row:
    """The scores of a method on all images of a cell."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text())
        self.seconds, self.fit_seconds = float(found["seconds"]), float(found["fit_seconds"])
        self.peak_bytes = float(found["peak_bytes"])
        self.scores = {key: [_score(one[key]) for one in found["images"]] for key in ("whole", "near")}
        self.per_image = np.array([one.iou for one in self.scores["whole"]])
        self.components = np.array([one[COMPONENTS] for one in found["images"]], float)

    def value(self, measure: str) -> float:
        """Return a measure of all images."""
        if measure in (PER_IMAGE, COMPONENTS):
            return float((self.per_image if measure == PER_IMAGE else self.components).mean())
        scores, metric = self._of(measure)
        return metric(total(scores))

    def gain(self, other: "Row", measure: str) -> tuple[float, float]:
        """Return the difference from another method, and its standard error (jackknife over images)."""
        if measure in (PER_IMAGE, COMPONENTS):
            own = (self.per_image, other.per_image) if measure == PER_IMAGE else (self.components, other.components)
            gaps = own[0] - own[1]
            return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
        scores, metric = self._of(measure)
        return difference(scores, other._of(measure)[0], metric)

    def _of(self, measure: str) -> tuple[list[Score], Any]:
        if measure == BOUNDARY_IOU:
            return self.scores["near"], METRICS[IOU]
        return self.scores["whole"], METRICS[measure]


def verdict(gain: float, error: float, measure: str) -> int:
    """Return 1 where a difference is better by more than two standard errors, -1 where it is worse, else 0."""
    better = gain if measure in HIGHER else -gain
    return int(np.sign(better)) if abs(better) > 2 * error else 0
