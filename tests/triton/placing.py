"""Where the tests of Triton kernels run: on a GPU, or, where triton only interprets, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton

from locpmap.kernels import Model
from locpmap.potentials import Potentials

DEVICE = "cuda" if torch.cuda.is_available() and not triton.knobs.runtime.interpret else "cpu"


def place(array: Any) -> Any:
    """A NumPy array as a tensor of its own on the device."""
    return torch.from_numpy(np.array(array)).to(DEVICE)


def place_model(potentials: Potentials) -> Model:
    """The flat arrays as Triton's kernels take them."""
    model = potentials.model
    dtype = model.unary.dtype
    parts = {name: place(getattr(model, name)) for name in model._fields if name not in ("potts", "class_ptr")}
    tensors = parts | {name: place(getattr(model, name).astype(dtype)) for name in ("features", "tables")}
    return model._replace(**tensors)
