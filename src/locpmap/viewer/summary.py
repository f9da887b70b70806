"""Numbers on the page: of scenes, results and pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.errors import InputError
from locpmap.metrics import accuracy, intersection_over_union, negative_log_likelihood
from locpmap.refining.scoring import softmax
from locpmap.viewer.colours import hexadecimal
from locpmap.viewer.decoding import METHODS, Decoding
from locpmap.viewer.scenes import Scene


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


def summary(made: Decoding) -> dict[str, Any]:
    """Return a result without its arrays.

    ``areas`` has, per label, the mean area over the samples in pixels, its standard deviation, and the ends of the
    central 90 % interval.  Without samples it has only the number of pixels.  ``changed`` is the fraction of pixels
    whose label differs from the network's.
    """
    counts = np.bincount(made.labels.ravel(), minlength=len(made.scene.names))
    areas = [{"mean": float(count), "std": None, "low": None, "high": None} for count in counts]
    if made.areas is not None:
        low, high = made.areas.interval(0.9)
        found = zip(*(part.tolist() for part in (made.areas.mean, made.areas.std, low, high)), strict=True)
        areas = [dict(zip(("mean", "std", "low", "high"), numbers, strict=True)) for numbers in found]
    return {
        "method": made.settings.method,
        "title": METHODS[made.settings.method],
        "status": made.status,
        "seconds": made.seconds,
        "score": made.score,
        "probable": made.probability is not None,
        "n_samples": 0 if made.areas is None else made.areas.n_samples,
        "n_kept": 0 if made.samples is None else len(made.samples),
        "areas": areas,
        "changed": float((made.labels != made.scene.network_labels).mean()),
        "quality": _quality(made),
    }


def pixel(made: Decoding, x: int, y: int) -> dict[str, Any]:
    """Return the label and distribution of one pixel, and the network's distribution."""
    height, width = made.scene.shape
    if not (0 <= x < width and 0 <= y < height):
        raise InputError(f"The pixel ({x}, {y}) is outside the image of {width}×{height}.")
    probability = None if made.probability is None else made.probability[y, x].tolist()
    truth = None if made.scene.truth is None else int(made.scene.truth[y, x])
    network = softmax(made.scene.logits[y, x]).tolist()
    return {
        "x": x,
        "y": y,
        "label": int(made.labels[y, x]),
        "probability": probability,
        "network": network,
        "truth": truth,
    }


def _quality(made: Decoding) -> dict[str, float] | None:
    """Return accuracy, mean IoU and NLL if the true labels are known."""
    truth, n_labels = made.scene.truth, len(made.scene.names)
    if truth is None:
        return None
    quality = {
        "accuracy": accuracy(made.labels, truth),
        "iou": float(np.nanmean(intersection_over_union(made.labels, truth, n_labels))),
    }
    if made.probability is not None:
        quality["nll"] = negative_log_likelihood(made.probability, truth)
    return quality
