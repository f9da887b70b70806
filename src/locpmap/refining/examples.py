"""Training examples: images with scores and true labels, checked one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore, refuse_masked, to_labels
from locpmap.errors import InputError, InputTypeError, whole_number, within
from locpmap.guarantees.source import SAME_STRIDE
from locpmap.refining.model import full_size
from locpmap.refining.reading import Given, read

VOID = -1


@dataclass(frozen=True, eq=False)
class Example:
    """One image with its scores and true labels."""

    given: Given
    stride: float
    scores: Array  # (H, W, K) at the size of the image
    labels: Array  # (H, W), VOID where the true label is unknown
    group: int  # images of a group are held out together


def gather(
    images: Any,
    logits: Any,
    labels: Any,
    ignore_label: int,
    layout: str,
    scores: str,
    stride: float | None,
    spacing: Any = None,
    groups: Any = None,
) -> list[Example]:
    """Return one example per image; raise where the numbers of labels differ, or the strides by more than 20 %.

    ``spacing`` is None for images. For volumes it is that of all of them, or a sequence with one entry per volume.
    ``groups`` holds one name or number per image, or is None if each image is a group of its own.
    """
    if stride is not None:
        within("stride", stride, 1)
    ignore_label = whole_number("ignore_label", ignore_label, -(2**31), 2**31)
    n = _length("logits", logits)
    pairs = {"images": images, "labels": labels, "groups": groups}
    for name, values in pairs.items():
        if (values is not None or name == "labels") and _length(name, values) != n:
            raise InputError(f"{name} holds {_length(name, values)} entries, expected {n} like logits")
    if images is not None and (missing := [k for k in range(n) if images[k] is None]):
        raise InputError(f"images[{missing[0]}] is None, expected an image, or images=None if there are no images")
    is_sequence = hasattr(spacing, "__len__") and getattr(spacing, "shape", None) != ()
    each = spacing if is_sequence and any(map(np.ndim, spacing)) else [spacing] * n
    if len(each) != n:
        raise InputError(f"spacing holds {len(each)} entries, expected {n} like logits")
    seen = [None] * n if images is None else images
    of_image = range(n) if groups is None else _numbers(groups)
    found = [
        _example((seen[k], logits[k], layout, scores, each[k]), labels[k], k, ignore_label, stride, of_image[k])
        for k in range(n)
    ]
    if len({example.given.spacing is None for example in found}) == 2:
        raise InputError("spacing is known for some entries only, expected volumes or images: pass spacing=")
    counts = {example.scores.shape[-1] for example in found}
    if len(counts) > 1:
        raise InputError(f"logits has from {min(counts)} to {max(counts)} labels, expected the same number per image")
    strides = [example.stride for example in found]
    if max(strides) > SAME_STRIDE * min(strides):
        raise InputError(
            f"strides range from {min(strides):.3g} to {max(strides):.3g}, expected one: fit a refiner for each stride"
        )
    if all((example.labels == VOID).all() for example in found):
        raise InputError("labels are all ignore_label, expected at least one other label")
    return found


def _example(
    inputs: tuple[Any, ...], labels: Any, k: int, ignore_label: int, stride: float | None, group: int
) -> Example:
    try:
        given = read(*inputs)
        if given.batched or not np.isfinite(float(given.scores.min())):
            raise InputError("logits has a batch axis or holds -inf, expected finite scores of one image")
    except InputError as error:
        raise InputError(f"image {k}: {error}") from None
    here, full = stride or given.stride, full_size(given)
    refuse_masked(labels, f"labels[{k}]", "mark void pixels by ignore_label")
    truth = to_labels(labels, f"labels[{k}]")
    if truth.shape != given.shape:
        raise InputError(f"labels[{k}] has shape {truth.shape}, expected {given.shape} like the image")
    void = truth == ignore_label
    wrong = truth[~void & ((truth < 0) | (truth >= full.shape[-1]))]
    if wrong.size:
        raise InputError(
            f"labels[{k}] contains {wrong[0]}, expected 0 to {full.shape[-1] - 1} or ignore_label={ignore_label}"
        )
    truth = np.where(void, VOID, truth)
    return Example(given, float(here), Restore()(full)[0], truth, group)


def _numbers(groups: Any) -> list[int]:
    """Return the number of each image's group, in the order of the first images."""
    numbers: dict[Any, int] = {}
    found = []
    for k, name in enumerate(groups.tolist() if hasattr(groups, "tolist") else groups):
        try:
            found.append(numbers.setdefault(name, len(numbers)))
        except TypeError:
            raise InputTypeError(f"groups[{k}] is {name!r}, expected a name or a number") from None
        if name is None or name != name:
            raise InputError(f"groups[{k}] is {name!r}, expected a name or a number")
    return found


def _length(name: str, values: Any) -> int:
    if not hasattr(values, "__len__") or not hasattr(values, "__getitem__") or isinstance(values, dict | str | bytes):
        raise InputTypeError(f"{name} is a {type(values).__name__}, expected a list or a batch")
    if len(values) == 0:
        raise InputError(f"{name} is empty, expected at least one image")
    return len(values)
