"""Read the outputs of segmentation networks without importing their libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locpmap.errors import InputError

NAMES = ("logits", "out")  # Hugging Face's and torchvision's


def adapt(logits: Any, layout: str = "auto") -> tuple[Any, str]:
    """Return the scores in a network's output, and their layout: labels first where the library puts them first.

    Takes an object with ``.logits`` or a dictionary with the key "logits" (Hugging Face's semantic segmentation,
    (N, K, h, w)), torchvision's dictionary with the key "out" (N, K, H, W), and anything else as it is.

    >>> import numpy as np
    >>> adapt({"out": np.zeros((1, 21, 8, 8))})[1]
    'khw'
    >>> adapt(np.zeros((8, 8, 21)))[1]
    'auto'
    """
    if isinstance(logits, Mapping):
        names = [name for name in NAMES if name in logits]
        if not names:
            raise InputError(
                f"logits is a dictionary with the keys {sorted(map(str, logits))}, expected 'logits' or 'out'"
            )
        found = logits[names[0]]
    else:
        found = getattr(logits, "logits", None)
    return (logits, layout) if found is None else (found, "khw" if layout == "auto" else layout)
