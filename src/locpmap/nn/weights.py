"""A network's weights as files keep them: all numbers but counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locpmap.errors import InputError


def lasting(network: torch.nn.Module) -> dict[str, Tensor]:
    """What a file keeps: all but counters."""
    return {name: value for name, value in network.state_dict().items() if value.is_floating_point()}


def to_arrays(network: torch.nn.Module, *, half: bool = False) -> dict[str, npt.NDArray[Any]]:
    """The same as arrays in single precision, or ``half``, at half the size."""
    dtype = np.float16 if half else np.float32
    return {name: value.cpu().numpy().astype(dtype) for name, value in lasting(network).items()}


def take_weights(network: torch.nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a network weights that were kept in a file, which has all of them but the counters of batches."""
    wrong = network.load_state_dict(weights, strict=False)
    lacking = [name for name in wrong.missing_keys if not name.endswith("num_batches_tracked")]
    if lacking or wrong.unexpected_keys:
        raise InputError(f"its weights lack {lacking} and hold {wrong.unexpected_keys}")
