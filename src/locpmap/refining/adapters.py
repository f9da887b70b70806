"""Readers for the outputs of segmentation networks, without importing the networks' libraries."""

from collections.abc import Mapping
from typing import Any

from locpmap.errors import InputError

NAMES = ("logits", "out")  # keys of Hugging Face and of torchvision


def adapt(logits: Any, layout: str = "auto") -> tuple[Any, str]:
    """Extract the scores from a network's output, and return them with their layout.

    Supported outputs are Hugging Face's (an attribute or key "logits", (N, K, h, w)) and torchvision's (a key "out",
    (N, K, H, W)). For both, "auto" becomes "khw". Other inputs are returned unchanged.

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
