"""Values of masked pixels, which may hold anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError

SHAPE, K = (20, 24), 3
MASK = np.arange(SHAPE[1]) < 9 + np.arange(SHAPE[0])[:, None] // 4


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Return an image of three stripes and probabilities (H, W, 3)."""
    labels = np.arange(SHAPE[1]) * K // SHAPE[1] * np.ones((SHAPE[0], 1), int)
    rng = np.random.default_rng(0)
    scores = np.exp(2 * np.eye(K)[labels] + rng.normal(size=(*SHAPE, K)))
    return labels * 50.0 + rng.normal(size=SHAPE), scores / scores.sum(-1, keepdims=True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, 0.5])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_values_of_masked_pixels_do_not_matter(value: float, kind: str) -> None:
    image, scores = scene()
    scores = np.log(scores) if kind == "logits" else scores
    zero, other = (np.where(MASK[..., None], fill, scores) for fill in (0.0, value))
    dark, odd = (np.where(MASK, fill, image) for fill in (0.0, value if abs(value) == np.inf else np.nan))
    expected, found = (lp.refine(*given, mask=MASK) for given in ((dark, zero), (odd, other)))
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.probability, expected.probability)
    whole = lp.refine(image, scores, mask=MASK, scores=kind)
    np.testing.assert_allclose(found.probability, whole.probability, atol=1e-4)


def test_masked_values_of_batches_tensors_and_coarse_scores() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    image, scores = scene()
    bad = np.where(MASK[..., None], np.nan, scores)
    expected = lp.refine(image, bad, mask=MASK, layout="hwk").probability
    masks = np.stack([MASK, np.zeros_like(MASK)])
    batch = lp.refine(np.stack([image] * 2), np.stack([bad, scores]), mask=masks, layout="hwk")
    np.testing.assert_allclose(batch.probability[0], expected, atol=1e-6)
    tensors: Any = torch.from_numpy(image), torch.from_numpy(np.moveaxis(bad, -1, 0).copy())
    np.testing.assert_allclose(lp.refine(*tensors, mask=MASK).probability, expected, atol=1e-5)
    with pytest.raises(InputError, match="logits contains nan"):  # unmasked pixels need these scores, too
        lp.refine(image, bad[::4, ::4], mask=MASK, layout="hwk")
    with pytest.raises(InputError, match="image contains a number that is not finite"):
        lp.refine(np.where(MASK, image, np.nan), scores, mask=MASK)
