"""`lp.refine` of tensors gives the results of arrays, on images and volumes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from tests.triton.placing import DEVICE, place

import locpmap as lp
from locpmap.kernels.triton.backend import TritonKernels


@pytest.fixture
def tensors_have_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat tensors of the CPU, on which the interpreter works, like those of a GPU."""
    if DEVICE == "cuda":
        return
    given = {"on_gpu": torch.is_tensor, "has_kernels": lambda device: device is not None}
    given["place"] = lambda backend, device, job=None, n_threads=None: TritonKernels("cpu")
    modules = [module for name, module in sys.modules.items() if name.startswith("locpmap.") and "triton" not in name]
    for name, function in given.items():
        for module in modules:
            if callable(getattr(module, name, None)):
                monkeypatch.setattr(module, name, function)


def case(shape: tuple[int, ...], n_labels: int) -> tuple[Any, Any]:
    """Return an image with a ball, and logits (.., K) that are often wrong."""
    rng = np.random.default_rng(0)
    middle = np.reshape(shape, (-1, *[1] * len(shape))) / 2
    ball = (((np.indices(shape) - middle) ** 2).sum(0) < 9).astype(int)
    return 3 * ball + rng.random(shape), (3 * np.eye(n_labels)[ball] + rng.normal(size=(*shape, n_labels)))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("shape", "n_labels", "spacing"), [((18, 21), 4, None), ((6, 8, 9), 3, (2.0, 1.0, 1.0))])
def test_tensors_and_arrays_give_the_same_result(
    shape: tuple[int, ...], n_labels: int, spacing: Any, masked: bool, request: pytest.FixtureRequest
) -> None:
    image, logits = case(shape, n_labels)
    mask = np.random.default_rng(1).random(shape) < 0.2 if masked else None
    how = {"spacing": spacing, "mask": mask, "decoder": lp.LocPMAP(4, start="perturbed")}
    how["layout"] = "hwk" if spacing is None else "dhwk"
    expected = lp.refine(image, logits, **how)
    assert expected.backend == "numba"
    request.getfixturevalue("tensors_have_kernels")
    found = lp.refine(place(image), place(logits), **how)
    assert (found.backend, found.labels.device.type) == ("triton", DEVICE)
    assert (found.labels.cpu().numpy() == expected.labels).mean() > 0.99  # rounding may decide about a pixel
    difference = np.abs(found.probability.cpu().numpy() - expected.probability)
    assert difference.mean() < 1e-3
    assert (found.labels.cpu().numpy() == logits.argmax(-1)).mean() < 0.99
