"""The adaptation to images on a GPU matches that on the CPU, with masks, many labels and volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import place
from tests.triton.together import run_together

from locpmap.kernels.triton import adaptation
from locpmap.refining import adapting
from locpmap.refining.adapting import Rule, adapted_to


def case(shape: tuple[int, ...], n_labels: int) -> tuple[Any, Any]:
    """Return scores and guided log means of three images: that agree, that do not, and with forbidden labels."""
    rng = np.random.default_rng(n_labels)
    scores = 3 * rng.normal(size=(3, *shape, n_labels))
    agree = np.reshape([1.0, 0.0, 0.8], (3, *[1] * len(shape), 1))
    guided = agree * scores + rng.normal(size=scores.shape)
    guided -= np.log(np.exp(guided).sum(-1, keepdims=True))
    scores[2][rng.random(scores[2].shape) < 0.2] = -np.inf
    return scores.astype(np.float32), np.maximum(guided, np.log(1e-6)).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "n_labels"), [((1, 1), 3), ((3, 70), 2), ((67, 33), 21), ((131, 68), 5), ((5, 33, 18), 3)]
)
@pytest.mark.parametrize("masked", [False, True])
def test_adaptation_matches_that_on_the_cpu(
    shape: tuple[int, ...], n_labels: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(shape, n_labels, masked, monkeypatch)


def test_programs_share_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    run_together(monkeypatch, 3, adaptation)
    monkeypatch.setattr(adaptation, "ITEMS", 1024)
    compare((67, 33), 21, True, monkeypatch)


def test_equal_predictions_keep_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "has_kernels", lambda device: True)
    scores = np.tile(np.linspace(0, 0.7, 3, dtype=np.float32), (1, 33, 33, 1))
    guided = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    found = adapted_to(place(scores), place(guided), None, 0.3, 0.7, Rule(0.4, 0.1))
    assert [one.item() for one in found] == [0, 1]


def compare(shape: tuple[int, ...], n_labels: int, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare strengths and factors."""
    scores, guided = case(shape, n_labels)
    hidden = np.random.default_rng(1).random((3, *shape)) < 0.3 if masked else None
    if hidden is not None:
        hidden[0] = True  # an image without pixels
    numbers = (0.3, 0.7, Rule(0.4, 0.1))
    expected = adapted_to(scores, guided, hidden, *numbers)
    monkeypatch.setattr(adapting, "has_kernels", lambda device: True)
    found = adapted_to(place(scores), place(guided), None if hidden is None else place(hidden), *numbers)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.cpu().numpy(), other, rtol=2e-5, atol=2e-6)
    if shape == (67, 33):
        assert expected.strength[1] == 0
        assert 0 < expected.strength[2] < 1
        assert expected.factor[2] != 1
