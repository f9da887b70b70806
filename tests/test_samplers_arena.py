"""The NumPy samplers of benchmarks: their steps leave the distribution invariant."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.exact_data import exact_images
from tests.oracles.statistics import chi_square_p_value

import locpmap as lp
from locpmap.features import Features
from locpmap.learning.batches import Batch

others = pytest.importorskip("benchmarks.samplers.others")

N_CHAINS = 30_000
PLACE = 2 ** np.arange(6)


def model(low: float) -> tuple[lp.Potentials, Enumeration]:
    """Return a 2 × 3 grid with Potts weights from ``low`` to 2, and its enumeration."""
    rng = np.random.default_rng(4)
    right, down = rng.uniform(low, 2, (2, 2)), rng.uniform(low, 2, (1, 3))
    pot = lp.Potentials.grid(rng.normal(size=(2, 3, 2)), (right, down))
    weights = np.broadcast_to(pot.model.features[0, :, 0], len(pot.model.edges))
    tables = weights[:, None, None] * np.eye(2)
    return pot, Enumeration(pot.unary[0].astype(np.float64), pot.model.edges.astype(np.int64), tables)


def counts_of(labels: np.ndarray) -> np.ndarray:
    """Count the labellings, (S, C) -> (64,)."""
    return np.bincount(PLACE @ labels.astype(np.int64), minlength=64)


@pytest.mark.parametrize("low", [0.0, -2.0])
def test_gains_are_differences_of_the_score(low: float) -> None:
    pot, exact = model(low)
    score = dict(zip((exact.labellings @ PLACE).tolist(), np.log(exact.probability), strict=True))
    gains = others.gains_of(pot)(exact.labellings.T.astype(np.float64))
    for n, y in enumerate(exact.labellings):
        for site in range(6):
            flipped = int(y @ PLACE + (1 - 2 * y[site]) * PLACE[site])
            assert gains[site, n] == pytest.approx(score[flipped] - score[int(y @ PLACE)], abs=1e-5)


@pytest.mark.parametrize("low", [0.0, -2.0])
@pytest.mark.parametrize(("make", "size"), [("flip_one", 0.3), ("flip_all", 0.3), ("flip_all", 2.0)])
def test_steps_leave_the_distribution_invariant(make: str, size: float, low: float) -> None:
    """Exact samples remain exact after every step, and many of them have moved."""
    pot, exact = model(low)
    rng, gains = np.random.default_rng(1), others.gains_of(pot)
    step = getattr(others, make)(rng, gains)
    drawn = rng.choice(len(exact.probability), N_CHAINS, p=exact.probability)
    first = y = exact.labellings[drawn].T.astype(np.float64)
    expected = np.zeros(64)
    expected[exact.labellings @ PLACE] = exact.probability
    for _ in range(5):
        new, accepted = step(y, gains(y), size)
        y = np.where(accepted, new, y)
        assert chi_square_p_value(counts_of(y), expected) > 1e-6
    assert (y != first).any(axis=0).mean() > 0.1


def test_coupling_from_the_past_samples_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances with every call, so that the number of samples is always the same."""
    pot, exact = model(0.0)
    monkeypatch.setattr(others, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
    found = others.coupling_from_the_past(pot, 4_000, 0)
    np.testing.assert_allclose(found, exact.probability @ exact.labellings, atol=0.02)


def test_resampled_rows_leave_the_distribution_invariant() -> None:
    """Check the chain of RLNS in benchmarks/dial.py."""
    dial = pytest.importorskip("benchmarks.dial")
    rng, coupling = np.random.default_rng(3), 0.9
    unary = rng.normal(size=(2, 3, 2))
    edges = lp.Potentials.grid(unary, coupling).model.edges.astype(np.int64)
    exact = Enumeration(unary.reshape(6, 2), edges, np.broadcast_to(coupling * np.eye(2), (len(edges), 2, 2)))
    drawn = rng.choice(len(exact.probability), N_CHAINS, p=exact.probability)
    first = exact.labellings[drawn].astype(np.int64)
    labels = first.reshape(-1, 2, 3).copy()
    expected = np.zeros(64)
    expected[exact.labellings @ PLACE] = exact.probability
    for row in (0, 1, 0):
        dial._resample_rows(np.broadcast_to(unary, (N_CHAINS, 2, 3, 2)), coupling, labels, row, rng)
        assert chi_square_p_value(counts_of(labels.reshape(-1, 6).T), expected) > 1e-6
    assert (labels.reshape(-1, 6) != first).any(axis=1).mean() > 0.5


@pytest.mark.parametrize(
    ("name", "options", "n_calls", "invariant"),
    [
        ("persistent", {"n_steps": 2}, 3, True),
        ("climb", {"max_sweeps": 1}, 1, True),
        ("climb", {"max_sweeps": 1, "blocks": "rows", "line_noise": "joint"}, 1, True),
        ("climb", {"max_sweeps": 10}, 1, False),  # later sweeps meet the noise of earlier ones again
    ],
    ids=str,
)
def test_chains_of_the_dial_leave_the_distribution_invariant(
    name: str, options: dict[str, Any], n_calls: int, invariant: bool
) -> None:
    dial = pytest.importorskip("benchmarks.dial")
    images, labels = exact_images(N_CHAINS, 3, 3, 1.2, 0.7, np.random.default_rng(4))
    features = Features.grid(np.stack([np.zeros_like(images), images], axis=-1))
    batch = Batch(features, labels.reshape(N_CHAINS, -1).astype(np.int16), np.ones((1, 1)))
    make = (
        dial.persistent(**options) if name == "persistent" else dial.decoded(lp.LocPMAP(1, **options), from_data=True)
    )
    sample, w = make(dial.model(2)._parameters(features)), np.array([1.2, 0.7])
    for number in range(n_calls):
        drawn = sample(batch, w, 1, number, 0)[:, :, 0]

    def score(labels: np.ndarray) -> np.ndarray:
        agree = [np.diff(labels, axis=axis) == 0 for axis in (1, 2)]
        return w[0] * (images * labels).sum(axis=(1, 2)) + w[1] * sum(each.sum(axis=(1, 2)) for each in agree)

    change = score(drawn.reshape(images.shape)) - score(labels)
    z = change.mean() / (change.std() / np.sqrt(N_CHAINS))
    assert (drawn != batch.labels).any(axis=1).mean() > 0.5
    assert abs(z) < 4.5 if invariant else abs(z) > 10
