"""Outputs of segmentation networks, as their libraries hand them out, without importing these libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import to_float
from locpmap.errors import InputError
from locpmap.refining.resizing import resize

NAMES = ("logits", "out")  # Hugging Face's and torchvision's


class Output(NamedTuple):
    """Scores, and the order of their axes where the library says it."""

    scores: Any
    layout: str


def adapt(logits: Any, layout: str = "auto") -> Output:
    """The scores in what a network returned, labels first where the library puts them first.

    Takes an object with ``.logits`` or a dictionary with the key "logits" (Hugging Face's semantic segmentation,
    (N, K, h, w)), torchvision's dictionary with the key "out" (N, K, H, W), and anything else as it is.

    >>> import numpy as np
    >>> adapt({"out": np.zeros((1, 21, 8, 8))}).layout
    'khw'
    >>> adapt(np.zeros((8, 8, 21))).layout
    'auto'
    """
    found = None
    if isinstance(logits, Mapping):
        names = [name for name in NAMES if name in logits]
        if not names:
            raise InputError(
                f"logits is a dictionary with the keys {sorted(map(str, logits))}, expected 'logits' or 'out'"
            )
        found = logits[names[0]]
    elif hasattr(logits, "logits"):
        found = logits.logits
    if found is None:
        return Output(logits, layout)
    return Output(found, "khw" if layout == "auto" else layout)


def resized_to(output: Any, target_sizes: Sequence[tuple[int, int]]) -> list[Any]:
    """Scores (H, W, K) of each image in a network's output (N, K, h, w), resized to its own (H, W).

    >>> [scores.shape for scores in resized_to({"logits": np.zeros((2, 3, 4, 4))}, [(8, 8), (8, 12)])]
    [(8, 8, 3), (8, 12, 3)]
    """
    scores = to_float(adapt(output, "khw").scores, "logits")
    if scores.ndim != 4 or len(scores) != len(target_sizes):
        came = f"target_sizes holds {len(target_sizes)} sizes beside logits of shape {tuple(scores.shape)}"
        raise InputError(f"{came}, expected (N, K, h, w) and N sizes")
    last = scores.movedim(1, -1) if hasattr(scores, "movedim") else np.moveaxis(scores, 1, -1)
    for size in target_sizes:
        if len(size) != 2 or size[0] < last.shape[1] or size[1] < last.shape[2]:
            raise InputError(f"target_sizes holds {size!r}, expected (H, W) of at least {tuple(last.shape[1:3])}")
    return [resize(last[n : n + 1], *size)[0] for n, size in enumerate(target_sizes)]
