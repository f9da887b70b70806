"""The device of the Triton tests: a GPU, or the CPU in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton

from locpmap.kernels import Model
from locpmap.potentials import Potentials

DEVICE = "cuda" if torch.cuda.is_available() and not triton.knobs.runtime.interpret else "cpu"


def place(array: Any) -> Any:
    """Copy a NumPy array to a tensor on the device."""
    return torch.from_numpy(np.array(array)).to(DEVICE)


def place_model(potentials: Potentials) -> Model:
    """Return the model with tensors on the device, as the Triton kernels take it."""
    model = potentials.model
    dtype = model.unary.dtype
    parts = {name: place(getattr(model, name)) for name in model._fields if name not in ("potts", "class_ptr")}
    tensors = parts | {name: place(getattr(model, name).astype(dtype)) for name in ("features", "tables")}
    return model._replace(**tensors)
