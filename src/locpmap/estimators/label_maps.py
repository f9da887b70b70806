"""Label maps of any kind (names, numbers) as whole numbers from 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, InputTypeError
from locpmap.learning.batches import VOID


def labelled(labels: Array, ignore_label: Any) -> Array:
    """Whether each label is one that counts."""
    return np.ones(labels.shape, bool) if ignore_label is None else np.asarray(labels != ignore_label)


def classes_of(label_maps: Sequence[Array], ignore_label: Any) -> Array:
    """The labels that occur, sorted, without the one to ignore."""
    try:
        classes = np.unique(np.concatenate([np.unique(label_map) for label_map in label_maps]))
    except TypeError:
        raise InputTypeError("label_maps holds labels of different kinds, expected labels that can be sorted") from None
    if classes.dtype.kind == "f" and not (np.isfinite(classes) & (classes == np.round(classes))).all():
        raise InputError("label_maps contains fractions or NaN, expected whole numbers or names")
    classes = classes[labelled(classes, ignore_label)]
    if len(classes) < 2:
        raise InputError(f"label_maps holds the labels {classes.tolist()}, expected at least two classes")
    return classes


def encode(label_map: Array, classes: Array, ignore_label: Any) -> Array:
    """Places in ``classes`` as int16, VOID for the label to ignore; every other label is one of the classes."""
    places = np.searchsorted(classes, label_map).astype(np.int16)
    return np.where(labelled(label_map, ignore_label), places, np.int16(VOID))
