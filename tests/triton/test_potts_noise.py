"""The noise of the Potts climb, and the best labels under it, match the reference's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import place

from locpmap.kernels.model import GridWindow
from locpmap.kernels.perturbation import GIVEN, PERTURBED, PLAIN, Perturbation
from locpmap.kernels.reference import noise
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.climb import climb_potts as launching
from locpmap.kernels.triton.climb.climb_potts import climb_potts

KEY = (12345, 2**32 - 3)
R = 9


class Launch:
    """The kernel of the climb; stores the score of label 1 minus label 0 of its last launch, without neighbours."""

    def __init__(self) -> None:
        self.kernel = launching._climb

    def __getitem__(self, grid: Any) -> Any:
        def call(arrays: Any, room: Any, *rest: Any, **options: Any) -> None:
            self.scores = room.reals
            self.kernel[grid](arrays, room, *rest, **options)

        return call


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_of_two_labels_matches_the_reference(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    height, width, amount, window = 3, 5, 0.5, (3, 2, 2**33)
    unary = (2 * rng.normal(size=(1, 15, 2))).astype(dtype)
    unary[..., 1:][rng.random((1, 15, 1)) < 0.2] = -np.inf
    weights = place(np.zeros((1, height, width - 1), dtype)), place(np.zeros((1, height - 1, width), dtype))
    monkeypatch.setattr(launching, "_climb", launch := Launch())
    climb = Climb(Perturbation(PLAIN, amount, *KEY), PERTURBED, None, max_sweeps=1, first_image=4)
    grid = GridWindow(height, width, *window, whole_sites=2**40)
    climb_potts(place(unary), *weights, grid, climb, Span(0, 1, 120, R))
    found = launch.scores.cpu().numpy().reshape(2, 8, -1)  # colour, sample in a word, lane
    rows, columns, sites = sites_of(height, width, window)
    for s in range(R):
        scores = noise.perturbed_lazy(unary[0].astype(np.float64), amount, KEY, 4, 120 + s, sites)
        colour = (rows + columns + window[0] + window[1]) % 2
        lane = (rows * ((width + 1) // 2) + columns // 2) * -(-R // 8) + s // 8
        # Noise and unaries are of order 10; nested logarithms lose a few more digits.
        tolerance = 1e-12 if dtype == np.float64 else 2e-5
        expected = scores[:, 1] - scores[:, 0]
        np.testing.assert_allclose(found[colour, s % 8, lane], expected, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize(
    ("n_labels", "dtype"),
    [
        (3, np.float64),
        (21, np.float32),
        *(pytest.param(many, np.float32, marks=pytest.mark.slow) for many in (4, 7, 8, 16, 33)),
    ],
)
def test_best_labels_match_the_reference_scores(n_labels: int, dtype: Any) -> None:
    """First visits to the first colour take the label of the best reference score, unless two are within rounding."""
    rng = np.random.default_rng(n_labels)
    height, width, amount, window, n_samples = 10, 13, 0.5, (3, 2, 2**33), 24
    n_sites = height * width
    unary = rng.normal(size=(1, n_sites, n_labels)).astype(dtype)
    unary[..., 1:][rng.random((1, n_sites, n_labels - 1)) < 0.1] = -np.inf
    strength = np.full((height, width), 2.0)
    unary[0, : 3 * width, -1] -= (
        50  # e^-100 times as likely as the others, below single precision; but neighbours outweigh it
    )
    strength[:3] = 60.0
    right = (strength[:, 1:] * rng.random((height, width - 1))).astype(dtype)
    down = (strength[1:] * rng.random((height - 1, width))).astype(dtype)
    given = rng.integers(0, n_labels, (1, n_sites)).astype(np.uint8)
    given[0, : 3 * width : 2] = n_labels - 1
    climb = Climb(Perturbation(PLAIN, amount, *KEY), GIVEN, place(given), max_sweeps=1, first_image=4)
    grid, span = GridWindow(height, width, *window, whole_sites=2**40), Span(0, 1, 120, n_samples)
    labels, _ = climb_potts(place(unary), place(right[None]), place(down[None]), grid, climb, span)
    rows, columns, sites = sites_of(height, width, window)
    support = supports(given.reshape(height, width), right, down, n_labels).reshape(n_sites, n_labels)
    visited = (rows + columns + window[0] + window[1]) % 2 == 0
    n_close = n_far = 0
    for s in range(n_samples):
        scores = support + noise.perturbed_lazy(unary[0].astype(np.float64), amount, KEY, 4, 120 + s, sites)
        second, top = np.sort(scores, axis=1)[:, -2:].T
        close = top - second < (1e-10 if dtype == np.float64 else 1e-4)
        found, expected = labels[0, :, s].cpu().numpy(), scores.argmax(axis=1)
        assert ((found == expected) | close)[visited].all()
        n_close += close[visited].sum()
        n_far += (expected == n_labels - 1)[visited & (rows < 3)].sum()
    assert n_close <= 3
    assert n_far > 50


def supports(labels: Any, right: Any, down: Any, n_labels: int) -> Any:
    """Return the neighbours' contribution to the score of every label, (H, W, L)."""
    held = np.eye(n_labels)[labels]
    support = np.zeros(held.shape)
    support[:, 1:] += right[..., None] * held[:, :-1]
    support[:, :-1] += right[..., None] * held[:, 1:]
    support[1:] += down[..., None] * held[:-1]
    support[:-1] += down[..., None] * held[1:]
    return support


def sites_of(height: int, width: int, window: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    """Return the rows and columns of a window's sites, and their numbers in the whole image."""
    rows, columns = np.divmod(np.arange(height * width), width)
    return rows, columns, (window[0] + rows) * window[2] + window[1] + columns
