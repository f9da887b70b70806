"""Decoders with Triton kernels match the reference; results are tensors on the input's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.grid_cases import CASES, FORMS, model_of, odd_model
from tests.triton.placing import DEVICE

from locpmap import arrays
from locpmap.errors import BackendError
from locpmap.inference import infer
from locpmap.inference.api import bytes_needed
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels import placement
from locpmap.kernels.spec import Span
from locpmap.kernels.triton import backend as launches
from locpmap.kernels.triton import message_state, sampling
from locpmap.potentials import Potentials
from locpmap.result import Result
from locpmap.views import View


def compare_backends(pot: Potentials, method: str, other: str = "reference", **how: Any) -> None:
    compare_results(*(infer(pot, method, backend=backend, **how) for backend in ("triton", other)))


def compare_results(mine: Result, expected: Result) -> None:
    np.testing.assert_array_equal(mine.labels, expected.labels)
    if expected.probability is not None:
        np.testing.assert_allclose(mine.probability, expected.probability, rtol=0, atol=1e-9)
    if expected.samples is not None:
        np.testing.assert_array_equal(mine.samples, expected.samples)
    assert (mine.n_sweeps, mine.status, mine.noise) == (expected.n_sweeps, expected.status, expected.noise)
    assert (mine.backend, mine.device) == ("triton", DEVICE)


@pytest.mark.parametrize(("name", "n_labels", "form"), [*zip(CASES, 4 * (2, 3, 5), 2 * FORMS, strict=True)])
def test_locpmap_matches_the_reference(name: str, n_labels: int, form: str) -> None:
    """Cover every case once, every form with two cases, every number of labels with four."""
    case = CASES[name]
    pot = model_of(case, (5, 7), n_labels, form)
    decoder = case.decoder(pot, 10, keep_samples=case.batch)
    compare_results(*(infer(pot, decoder, backend=backend, seed=case.seed) for backend in ("triton", "reference")))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
@pytest.mark.parametrize(("n_labels", "form"), [(2, "weight"), (2, "table"), (3, "weights"), (5, "hard tables")])
def test_locpmap_on_few_sites_matches_the_reference(shape: tuple[int, int], n_labels: int, form: str) -> None:
    compare_backends(model_of(CASES["defaults"], shape, n_labels, form), "locpmap", n_samples=10, keep_samples=True)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter has one program")
@pytest.mark.parametrize(("blocks", "n_labels"), [(b, n) for b in ("sites", "rows+columns") for n in (2, 8, 21)])
def test_many_programs_share_an_image(blocks: str, n_labels: int) -> None:
    rng = np.random.default_rng(n_labels)
    weights = (rng.uniform(0, 1.5, (3, 150, 152)), rng.uniform(0, 1.5, (149, 153)))
    pot = Potentials.grid(rng.normal(size=(3, 150, 153, n_labels)), weights)
    compare_backends(pot, "locpmap", "numba", n_samples=20, blocks=blocks, keep_samples=True)


@pytest.mark.parametrize("start", ["random", "unary"])
def test_icm_matches_the_reference(start: str) -> None:
    compare_backends(odd_model((5, 7), 3, "table", 3), "icm", start=start, max_sweeps=30)


@pytest.mark.parametrize(("shape", "n_labels"), [((1, 3), 2), ((5, 7), 3), ((9, 6), 5)])
def test_a_climb_without_noise_matches_the_reference(shape: tuple[int, int], n_labels: int) -> None:
    pot = model_of(CASES["defaults"], shape, n_labels, "weights")
    compare_backends(pot, "locpmap", n_samples=1, start="perturbed", temperature=0.0, probability="votes")


def test_icm_iter_matches_the_reference() -> None:
    compare_backends(odd_model((5, 7), 3, "either sign", 3), "icm_iter", n_samples=9)


def test_masked_grids_and_graphs_match_the_reference() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((4, 5)) < 0.3
    masked = Potentials.grid(rng.normal(size=(4, 5, 3)), 0.7, mask=mask)
    compare_backends(masked, "locpmap", n_samples=8, probability="votes")
    compare_backends(masked, "locpmap", n_samples=8, probability="conditional")
    edges = [[0, 1], [1, 2], [2, 0], [2, 3]]
    pot = Potentials.graph(rng.normal(size=(2, 5, 3)), edges, rng.normal(size=4))
    compare_backends(pot, "locpmap", n_samples=8, probability="conditional")


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_grids_need_no_neighbour_lists(weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbour lists take longer to build than the rest of the inference; uncoupled models need no climb either."""
    pot = Potentials.grid(np.random.default_rng(0).normal(size=(2, 4, 5, 3)), weight)
    how: dict[str, Any] = {"n_samples": 3, "probability": "conditional", "start": "perturbed"}
    how |= {} if weight else {"temperature": 0}
    expected = infer(pot, "locpmap", backend="reference", **how)
    monkeypatch.delattr(View, "flat")
    compare_results(infer(pot, "locpmap", backend="triton", **how), expected)


@pytest.mark.slow
def test_out_of_memory_while_sampling_does_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    pot = odd_model((5, 7), 3, "weights", 3)
    how: dict[str, Any] = {"n_samples": 20, "probability": "conditional", "keep_samples": True, "backend": "triton"}
    expected = infer(pot, **how)
    climb, requested = sampling.Sampling.climb, []

    def climb_with_little_memory(kernels: Any, model: Any, how: Any, span: Span) -> Any:
        requested.append((span.hi - span.lo, span.n_samples))
        if span.hi - span.lo > 1 or span.n_samples > 8:
            raise torch.OutOfMemoryError("out of memory")
        return climb(kernels, model, how, span)

    monkeypatch.setattr(sampling.Sampling, "climb", climb_with_little_memory)
    mine = infer(pot, **how)
    assert {(3, 20), (1, 8), (1, 4)} <= set(requested)
    np.testing.assert_array_equal(mine.samples, expected.samples)
    np.testing.assert_array_equal(mine.probability, expected.probability)


@pytest.mark.parametrize("probability", ["votes", "conditional"])
def test_out_of_memory_while_counting_does_not_change_results(
    probability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sample is lost, counted twice or drawn again."""
    pot = Potentials.grid(np.random.default_rng(0).normal(size=(2, 3, 4, 2)), 1.0)
    how: dict[str, Any] = {"n_samples": 10, "probability": probability, "backend": "triton"}
    expected = infer(pot, **how)
    module: Any = sampling
    climbs: list[Any] = []
    climb = module.climb_potts

    def recorded(*given: Any) -> Any:
        climbs.append(given)
        return climb(*given)

    monkeypatch.setattr(module, "climb_potts", recorded)
    operation = "votes" if probability == "votes" else "grid_conditionals"
    count, refused = getattr(module, operation), []

    def count_few(*given: Any) -> None:
        if given[-1] - given[-2] > 3:
            refused.append(given[-2:])
            raise torch.OutOfMemoryError("out of memory")
        count(*given)

    monkeypatch.setattr(module, operation, count_few)
    mine = infer(pot, **how)
    assert refused == [(0, 12), (0, 6), (6, 12)]
    np.testing.assert_array_equal(mine.probability, expected.probability)
    assert len(climbs) == 1

    def count_none(*given: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(module, operation, count_none)
    with pytest.raises(torch.OutOfMemoryError):
        infer(pot, **how)


OPERATIONS = {
    "mean_field": "mean_field",
    "lbp": "pass_messages",
    "annealing": "gibbs",
    "gibbs": "gibbs",
    "icm": "climb_sites",
}
SLOW_OPERATIONS = {"max_product": "pass_messages", "trw": "pass_messages"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0
@pytest.mark.parametrize(
    ("method", "operation"),
    [*OPERATIONS.items(), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW_OPERATIONS.items())],
)
def test_out_of_memory_without_samples_does_not_change_results(
    method: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With memory for one of three images, results and status equal those of one run."""
    unary = np.random.default_rng(0).normal(size=(3, 2, 3, 2)).astype(np.float32)
    pot = Potentials.grid(unary, 0.4)
    few = {"annealing": {"n_sweeps": 2}, "gibbs": {"n_samples": 2, "burn_in": 1, "keep_samples": True}}
    how: dict[str, Any] = {"backend": "triton"} | few.get(method, {"max_sweeps": 2})
    expected = infer(pot, method, first_image=7, **how)
    module = {"climb_sites": sampling, "pass_messages": message_state}.get(operation, launches)
    kernel, requested = getattr(module, operation), []

    def with_little_memory(model: Any, *given: Any, **named: Any) -> Any:
        requested.append(len(model.unary))
        if len(model.unary) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return kernel(model, *given, **named)

    monkeypatch.setattr(module, operation, with_little_memory)
    mine = infer(pot, method, first_image=7, **how)
    assert requested[:2] == [3, 1]
    assert 2 in requested
    np.testing.assert_array_equal(mine.labels, expected.labels)
    for name in ("probability", "log_partition", "samples"):
        if getattr(expected, name) is not None:
            np.testing.assert_array_equal(getattr(mine, name), getattr(expected, name))
    assert (mine.status, mine.n_sweeps, mine.n_samples) == (expected.status, expected.n_sweeps, expected.n_samples)

    if method == "icm":  # given starting labels belong to all images together
        with pytest.raises(torch.OutOfMemoryError):
            infer(pot, method, start=np.zeros((3, 2, 3), int), **how)


@pytest.mark.parametrize(("free", "goes"), [(1 << 30, True), (1 << 20, False)])
def test_models_that_do_not_fit_stay_on_the_cpu(free: int, goes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pot = Potentials.grid(np.zeros((512, 512, 4), np.float32), 1.0)  # 4 MiB
    job = placement.Job(None, LocPMAP().work(pot.unary.size), bytes_needed(pot))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 1 << 40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    assert placement.gpu_pays(job) == goes
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 1 << 30)  # reserved by torch, but unused
    assert placement.gpu_pays(job)


def test_results_are_tensors_on_the_input_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "on_gpu", arrays.is_tensor)  # also for CPU tensors in the interpreter
    rng = np.random.default_rng(1)
    unary, right, down = rng.normal(size=(4, 5, 3)), rng.random((4, 4)), rng.random((3, 5))
    tensors = [torch.from_numpy(array).to(DEVICE) for array in (unary, right, down)]
    pot = Potentials.grid(tensors[0], tuple(tensors[1:]))
    assert torch.is_tensor(pot.unary)
    assert all(torch.is_tensor(w) for w in pot.pairwise.weights or ())
    mine = infer(pot, n_samples=9, backend="triton")
    expected = infer(Potentials.grid(unary, (right, down)), n_samples=9, backend="reference")
    for name in ("labels", "probability", "variance", "entropy"):
        found = getattr(mine, name)
        assert torch.is_tensor(found)
        assert found.device.type == DEVICE
        np.testing.assert_allclose(found.cpu().numpy(), getattr(expected, name), rtol=0, atol=1e-12)
    assert mine.score == pytest.approx(expected.score)
    on_cpu = infer(pot, "exact")
    np.testing.assert_array_equal(on_cpu.labels.cpu().numpy(), infer(pot.to(None), "exact").labels.cpu().numpy())


def test_decoder_without_triton_kernels_raises() -> None:
    with pytest.raises(BackendError, match="graph_cut runs on the CPU"):
        infer(odd_model((2, 3), 2, "weight", 1), "graph_cut", backend="triton")


@pytest.mark.parametrize(
    ("blocks", "form"), [("rows+columns", "weights"), ("rows+columns", "either sign"), ((2, 2), "either sign")]
)
def test_blocks_match_the_reference(blocks: Any, form: str) -> None:
    compare_backends(odd_model((3, 4), 2, form, 1), "locpmap", blocks=blocks, n_samples=6, probability="conditional")


@pytest.mark.parametrize("form", ["weights", "table"])
def test_gibbs_matches_the_reference(form: str) -> None:
    compare_backends(odd_model((3, 4), 3, form, 3), "gibbs", n_samples=6, burn_in=2, keep_samples=True)


@pytest.mark.parametrize("start", ["uniform", "unary"])
def test_mean_field_matches_the_reference(start: str) -> None:
    pot = odd_model((3, 4), 3, "weights", 3)
    mine, expected = (infer(pot, "mean_field", backend=backend, start=start) for backend in ("triton", "reference"))
    np.testing.assert_allclose(mine.probability, expected.probability, rtol=0, atol=1e-4)
    np.testing.assert_allclose(mine.log_partition, expected.log_partition, rtol=0, atol=1e-4)


def test_large_score_differences_at_low_temperature() -> None:
    rng = np.random.default_rng(3)
    compare_backends(Potentials.grid(1e30 * rng.normal(size=(3, 4, 3)), 1.0), "locpmap", n_samples=8, temperature=1e-9)
