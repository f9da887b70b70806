"""Numbers on the page: of scenes, results and pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from locpmap import metrics
from locpmap.errors import InputError
from locpmap.refining import interval_of
from locpmap_viewer.colours import VOID, hexadecimal
from locpmap_viewer.decoding import METHODS, Decoding
from locpmap_viewer.scenes import Scene

LEAST = 0.0005  # smallest fraction of the pixels that is not shown as 0.0 %


def scene_facts(scene: Scene) -> dict[str, Any]:
    """Return title, size, labels and colours of a scene."""
    height, width = scene.shape
    names = [
        {"name": name, "colour": colour} for name, colour in zip(scene.names, hexadecimal(scene.colours), strict=True)
    ]
    rows, columns = scene.scores.shape[:2]
    return {
        "title": scene.title,
        "width": width,
        "height": height,
        "labels": names,
        "logits": [columns, rows],
        "truth": scene.truth is not None,
    }


def summary(result: Decoding) -> dict[str, Any]:
    """Return a result without its arrays.

    ``areas`` has, per label, the median area over the samples in pixels, and the ends of the central 90 % interval, or
    of the guaranteed one if the refiner has a guarantee.  Without samples it has only the number of pixels.
    ``present`` is true for labels of at least one pixel, and for those of a mean area of the samples that is not
    negligible.  ``changed`` is the fraction of pixels whose label differs from the network's.
    """
    counts = np.bincount(result.labels.ravel(), minlength=len(result.scene.names))
    areas, guaranteed = [{"size": float(count), "low": None, "high": None} for count in counts], False
    present = counts > 0
    if result.areas is not None:
        low, high, guaranteed = interval_of(result.areas, 0.9, result.guarantee)
        found = zip(*(part.tolist() for part in (np.median(result.areas.values, axis=0), low, high)), strict=True)
        areas = [dict(zip(("size", "low", "high"), numbers, strict=True)) for numbers in found]
        present |= result.areas.mean >= LEAST * result.labels.size
    return {
        "method": result.settings.method,
        "title": METHODS[result.settings.method],
        "status": result.status,
        "seconds": result.seconds,
        "probable": result.probability is not None,
        "n_samples": 0 if result.areas is None else result.areas.n_samples,
        "n_stored": 0 if result.samples is None else len(result.samples),
        "areas": areas,
        "present": present.tolist(),
        "guaranteed": guaranteed,
        "coupled": result.coupled,
        "changed": float((result.labels != result.scene.network_labels).mean()),
        "quality": _quality(result),
    }


def pixel(result: Decoding, x: int, y: int) -> dict[str, Any]:
    """Return the label and distribution of one pixel, and the network's distribution."""
    height, width = result.scene.shape
    if not (0 <= x < width and 0 <= y < height):
        raise InputError(f"The pixel ({x}, {y}) is outside the image of {width}×{height}.")
    probability = None if result.probability is None else result.probability[y, x].tolist()
    truth = VOID if result.scene.truth is None else int(result.scene.truth[y, x])
    network = special.softmax(result.scene.logits[y, x]).tolist()
    return {
        "label": int(result.labels[y, x]),
        "probability": probability,
        "network": network,
        "truth": None if truth == VOID else truth,
    }


def differing(result: Decoding, others: Sequence[Decoding], truth: bool) -> np.ndarray:
    """Return where the label (H, W) differs from that of another result, or from the true label if ``truth``."""
    if not all(np.array_equal(other.scene.image, result.scene.image) for other in others):
        raise InputError("The results are of different scenes, expected results of one scene.")
    differs = np.zeros(result.scene.shape, bool)
    for other in others:
        differs |= result.labels != other.labels
    if truth:
        if result.scene.truth is None:
            raise InputError("The true labels of this scene are unknown.")
        differs |= (result.labels != result.scene.truth) & (result.scene.truth != VOID)
    return differs


def _quality(result: Decoding) -> dict[str, float] | None:
    """Return accuracy, mean IoU and NLL if the true labels are known."""
    truth, n_labels = result.scene.truth, len(result.scene.names)
    if truth is None:
        return None
    quality = {
        "accuracy": metrics.accuracy(result.labels, truth, ignore_label=VOID),
        "iou": float(np.nanmean(metrics.intersection_over_union(result.labels, truth, n_labels, ignore_label=VOID))),
    }
    if result.probability is not None:
        quality["nll"] = metrics.negative_log_likelihood(result.probability, truth, ignore_label=VOID)
    return quality
