"""Read the outputs of segmentation networks without importing their libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from locpmap.errors import InputError

NAMES = ("logits", "out")  # Hugging Face's and torchvision's


class Output(NamedTuple):
    """Scores, and their layout where the library defines it."""

    scores: Any
    layout: str


def adapt(logits: Any, layout: str = "auto") -> Output:
    """Return the scores in a network's output, labels first where the library puts them first.

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
