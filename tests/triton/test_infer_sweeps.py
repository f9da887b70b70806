"""Decoders that perform many sweeps per launch on a GPU match the reference, sweep by sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.grid_cases import odd_model
from tests.triton.placing import DEVICE

from locpmap import arrays
from locpmap.inference import ICM, Annealing, Gibbs, MeanField, infer
from locpmap.inference.decoder import Decoder, Problem
from locpmap.potentials import Potentials
from locpmap.result import Status

pytestmark = pytest.mark.slow


def compare(pot: Potentials, method: str, within: float = 1e-9, **how: Any) -> Any:
    """Compare Triton's result with the reference's, and return the latter."""
    mine, reference = (infer(pot, method, backend=backend, **how) for backend in ("triton", "reference"))
    np.testing.assert_array_equal(mine.labels, reference.labels)
    for name in ("probability", "log_partition", "r_hat", "n_effective"):
        if getattr(reference, name) is not None:
            np.testing.assert_allclose(getattr(mine, name), getattr(reference, name), rtol=0, atol=within)
    if reference.samples is None:
        assert mine.samples is None
    else:
        np.testing.assert_array_equal(mine.samples, reference.samples)
    assert (mine.n_sweeps, mine.n_samples, mine.status) == (reference.n_sweeps, reference.n_samples, reference.status)
    return reference


@pytest.fixture(autouse=True)
def few_sweeps_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few sweeps per step, so that short runs take several steps."""
    monkeypatch.setattr(Problem, "sweeps_per_step", property(lambda self: 4 if self.kernels.device else 1))


@pytest.mark.parametrize(
    "how",
    [
        {"n_samples": 5, "burn_in": 3, "thin": 2, "keep_samples": True},
        {"n_samples": 6, "burn_in": 5, "probability": "conditional"},
        {"n_samples": 1, "burn_in": 0, "keep_samples": True},
        {"n_samples": 2, "burn_in": 1, "thin": 5, "keep_samples": True, "probability": "conditional"},
        {"n_samples": 6, "burn_in": 2, "n_chains": 2, "keep_samples": True},
        {"n_samples": 16, "burn_in": 2, "n_chains": 2},
        {"n_samples": 10, "burn_in": 1, "n_chains": 2, "tempering": [1, 2], "keep_samples": True},
    ],
    ids=str,
)
def test_gibbs_matches_the_reference(how: dict[str, Any]) -> None:
    compare(odd_model((3, 4), 3, "table", 3), "gibbs", seed=5, **how)


@pytest.mark.parametrize(("form", "n_labels"), [("weights", 3), ("hard tables", 2)])
@pytest.mark.parametrize("n_sweeps", [1, 10])
def test_annealing_matches_the_reference(form: str, n_labels: int, n_sweeps: int) -> None:
    compare(odd_model((3, 4), n_labels, form, 3), "annealing", n_sweeps=n_sweeps, seed=2)


def test_annealing_returns_the_best_labelling_visited() -> None:
    """A chain at constant high temperature leaves its best labelling; a climb from its last one scores less."""
    rng = np.random.default_rng(1)
    pot = Potentials.grid(2 * rng.normal(size=(4, 4, 3)), 1.0)
    compare(pot, "annealing", n_sweeps=12, start_temperature=5.0, end_temperature=5.0)


@pytest.mark.parametrize(("max_sweeps", "status"), [(100, Status.CONVERGED), (4, Status.MAX_SWEEPS)])
def test_mean_field_matches_the_reference(max_sweeps: int, status: Status) -> None:
    pot = odd_model((3, 4), 3, "weights", 3)
    reference = compare(pot, "mean_field", 1e-6, max_sweeps=max_sweeps, tolerance=1e-7)
    assert reference.status == status


def test_mean_field_that_converges_at_the_end_of_a_step() -> None:
    pot = odd_model((3, 4), 3, "weights", 3)
    made = {t: infer(pot, "mean_field", tolerance=t, backend="reference").n_sweeps for t in 10.0 ** -np.arange(1, 10)}
    compare(pot, "mean_field", 1e-6, tolerance=next(t for t, n in made.items() if n % 4 == 0))


@pytest.mark.parametrize("max_sweeps", [1, 4, 100])
def test_icm_matches_the_reference(max_sweeps: int) -> None:
    compare(odd_model((5, 7), 3, "either sign", 3), "icm", max_sweeps=max_sweeps, seed=1)


def test_icm_iter_with_one_sample() -> None:
    compare(odd_model((5, 7), 3, "table", 3), "icm_iter", n_samples=1, drop=0.3)


def test_climbs_without_noise_use_the_unaries() -> None:
    how = {"temperature": 0.0, "n_samples": 9, "keep_samples": True}
    compare(odd_model((5, 7), 3, "table", 3), "locpmap", **how)
    compare(odd_model((5, 7), 2, "either sign", 3), "locpmap", **how, start="perturbed")


@pytest.mark.parametrize(
    "decoder",
    [Annealing(n_sweeps=5), Gibbs(n_samples=5, burn_in=2), MeanField(max_sweeps=6), ICM()],
    ids=lambda decoder: decoder.name,
)
def test_results_are_tensors_on_the_input_device(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "on_gpu", arrays.is_tensor)  # also for CPU tensors in the interpreter
    unary = np.random.default_rng(1).normal(size=(4, 5, 3))
    found = infer(Potentials.grid(torch.from_numpy(unary).to(DEVICE), 0.8), decoder, backend="triton").labels
    assert torch.is_tensor(found)
    assert found.device.type == DEVICE
    reference = infer(Potentials.grid(unary, 0.8), decoder, backend="reference").labels
    np.testing.assert_array_equal(found.cpu().numpy(), reference)
