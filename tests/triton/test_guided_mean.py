"""The guided mean matches the reference on images of odd shapes, with masks, many labels and both precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import DEVICE, place

from locpmap.kernels.reference.guided_mean import guided_mean as reference
from locpmap.kernels.triton.guided_mean import guided_mean
from locpmap.refining import guiding
from locpmap.refining.guiding import STEPS


@pytest.mark.parametrize("shape", [(1, 1, 40), (1, 40, 2), (67, 3, 33), (20, 33, 5)])
@pytest.mark.parametrize("n_channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sharpness", [0.0, 2.5])  # 0 for a uniform image
def test_guided_mean_matches_the_reference(
    shape: tuple[int, int, int], n_channels: int, dtype: Any, sharpness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if DEVICE == "cpu" and n_channels > 1:  # fewer programs: the interpreter runs one after the other
        monkeypatch.setattr("locpmap.kernels.triton.guided_mean.PIXELS", 16)
    rng = np.random.default_rng(1)
    values, image = rng.random(shape).astype(dtype), rng.random((n_channels, *shape[:2])).astype(dtype)
    counted = rng.random(shape[:2]) < 0.7
    expected, found = np.zeros(shape, dtype), place(np.zeros(shape, dtype))
    reference(np.moveaxis(values, -1, 1), image, counted, STEPS, sharpness, expected, 0, shape[0])
    guided_mean(place(values), place(image), place(counted), STEPS, sharpness, found)
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=2e-6)


def test_scores_with_labels_first_are_read_in_their_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks return (N, K, H, W), which reads as (N, H, W, K) with other strides."""
    monkeypatch.setattr(guiding, "has_kernels", lambda device: True)
    rng = np.random.default_rng(0)
    image, scores = rng.random((1, 2, 5, 7)).astype(np.float32), rng.normal(size=(1, 3, 5, 7)).astype(np.float32)
    found = guiding.guided_log_mean(place(scores).movedim(1, -1), place(image))
    expected = guiding.guided_log_mean(np.ascontiguousarray(np.moveaxis(scores, 1, -1)), image)
    np.testing.assert_allclose(found.cpu().numpy(), expected, atol=1e-5)
