"""Conversion of a network's weights to arrays and back, without the batch counters of its normalisation layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locpmap.errors import InputError


def to_arrays(network: torch.nn.Module, *, half: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Return the weights as arrays in single precision, or in half precision at half the size."""
    dtype = np.float16 if half else np.float32
    numbers = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
    return {name: value.cpu().numpy().astype(dtype) for name, value in numbers.items()}


def load_weights(network: torch.nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights from a file into a network; the counters of batches may be missing."""
    wrong = network.load_state_dict(weights, strict=False)
    lacking = [name for name in wrong.missing_keys if not name.endswith("num_batches_tracked")]
    if lacking or wrong.unexpected_keys:
        raise InputError(f"its weights lack {lacking} and hold {wrong.unexpected_keys}")
