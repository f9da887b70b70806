"""Decoders with Triton kernels match the reference; results are tensors on the input's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.test_backends import CASES, FORMS, model_of, odd_model
from tests.triton.placing import DEVICE

from locpmap import arrays
from locpmap.errors import BackendError
from locpmap.inference import infer
from locpmap.inference.api import bytes_needed
from locpmap.inference.locpmap import LocPMAP
from locpmap.inference.sampling import Tally
from locpmap.kernels import placement
from locpmap.kernels.spec import Span
from locpmap.kernels.triton import backend as launches
from locpmap.kernels.triton import message_state, sampling
from locpmap.potentials import Potentials
from locpmap.result import Result
from locpmap.views import View


def compare(pot: Potentials, method: str, other: str = "reference", **how: Any) -> None:
    agree(*(infer(pot, method, backend=backend, **how) for backend in ("triton", other)))


def agree(mine: Result, truth: Result) -> None:
    np.testing.assert_array_equal(mine.labels, truth.labels)
    if truth.probability is not None:
        np.testing.assert_allclose(mine.probability, truth.probability, rtol=0, atol=1e-9)
    if truth.samples is not None:
        np.testing.assert_array_equal(mine.samples, truth.samples)
    assert (mine.n_sweeps, mine.status, mine.noise) == (truth.n_sweeps, truth.status, truth.noise)
    assert (mine.backend, mine.device) == ("triton", DEVICE)


@pytest.mark.parametrize(("name", "n_labels", "form"), [*zip(CASES, 4 * (2, 3, 5), 2 * FORMS, strict=True)])
def test_locpmap(name: str, n_labels: int, form: str) -> None:
    """Cover every case once, every form with two cases, every number of labels with four."""
    case = CASES[name]
    pot = model_of(case, (5, 7), n_labels, form)
    decoder = case.decoder(pot, 10, keep_samples=case.batch)
    agree(*(infer(pot, decoder, backend=backend, seed=case.seed) for backend in ("triton", "reference")))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
@pytest.mark.parametrize(("n_labels", "form"), [(2, "weight"), (2, "table"), (3, "weights"), (5, "hard tables")])
def test_locpmap_on_few_sites(shape: tuple[int, int], n_labels: int, form: str) -> None:
    compare(model_of(CASES["defaults"], shape, n_labels, form), "locpmap", n_samples=10, keep_samples=True)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter has one program")
@pytest.mark.parametrize(("blocks", "n_labels"), [(b, n) for b in ("sites", "rows+columns") for n in (2, 8, 21)])
def test_many_programs_share_an_image(blocks: str, n_labels: int) -> None:
    rng = np.random.default_rng(n_labels)
    weights = (rng.uniform(0, 1.5, (3, 150, 152)), rng.uniform(0, 1.5, (149, 153)))
    pot = Potentials.grid(rng.normal(size=(3, 150, 153, n_labels)), weights)
    compare(pot, "locpmap", "numba", n_samples=20, blocks=blocks, keep_samples=True)


@pytest.mark.parametrize("start", ["random", "unary"])
def test_icm(start: str) -> None:
    compare(odd_model((5, 7), 3, "table", 3), "icm", start=start, max_sweeps=30)


def test_icm_iter() -> None:
    compare(odd_model((5, 7), 3, "either sign", 3), "icm_iter", n_samples=9)


def test_masked_sites_and_graphs() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((4, 5)) < 0.3
    masked = Potentials.grid(rng.normal(size=(4, 5, 3)), 0.7, mask=mask)
    compare(masked, "locpmap", n_samples=8, probability="votes")
    compare(masked, "locpmap", n_samples=8, probability="conditional")
    edges = [[0, 1], [1, 2], [2, 0], [2, 3]]
    pot = Potentials.graph(rng.normal(size=(2, 5, 3)), edges, rng.normal(size=4))
    compare(pot, "locpmap", n_samples=8, probability="conditional")


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_grids_need_no_lists_of_edges(weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbour lists take longer to build than the rest of the inference; uncoupled models need no climb either."""
    pot = Potentials.grid(np.random.default_rng(0).normal(size=(2, 4, 5, 3)), weight)
    how: dict[str, Any] = {"n_samples": 3, "probability": "conditional", "start": "perturbed"}
    how |= {} if weight else {"temperature": 0}
    truth = infer(pot, "locpmap", backend="reference", **how)
    monkeypatch.delattr(View, "flat")
    agree(infer(pot, "locpmap", backend="triton", **how), truth)


@pytest.mark.slow
def test_memory_that_runs_out_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pot = odd_model((5, 7), 3, "weights", 3)
    how: dict[str, Any] = {"n_samples": 20, "probability": "conditional", "keep_samples": True, "backend": "triton"}
    truth = infer(pot, **how)
    start, asked = Tally.start, []

    def in_little_memory(problem: Any, draw: Any, *limits: Any, **counted: Any) -> Tally:
        def draw_little(span: Span) -> Any:
            asked.append((span.hi - span.lo, span.n_samples))
            if span.hi - span.lo > 1 or span.n_samples > 8:
                raise torch.OutOfMemoryError("out of memory")
            return draw(span)

        return start(problem, draw_little, *limits, **counted)

    monkeypatch.setattr(Tally, "start", in_little_memory)
    mine = infer(pot, **how)
    assert {(3, 20), (1, 8), (1, 4)} <= set(asked)
    np.testing.assert_array_equal(mine.samples, truth.samples)
    np.testing.assert_array_equal(mine.probability, truth.probability)


@pytest.mark.parametrize("probability", ["votes", "conditional"])
def test_memory_that_runs_out_when_samples_are_counted(probability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sample is lost, counted twice or drawn again."""
    pot = Potentials.grid(np.random.default_rng(0).normal(size=(2, 3, 4, 2)), 1.0)
    how: dict[str, Any] = {"n_samples": 10, "probability": probability, "backend": "triton"}
    monkeypatch.setattr(sampling, "MAX_AT_ONCE", 0)  # otherwise samples are not counted into totals
    truth = infer(pot, **how)
    module: Any = sampling
    climbs: list[Any] = []
    climb = module.climb_potts

    def noted(*given: Any) -> Any:
        climbs.append(given)
        return climb(*given)

    monkeypatch.setattr(module, "climb_potts", noted)
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
    np.testing.assert_array_equal(mine.probability, truth.probability)
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
def test_memory_that_runs_out_without_samples(method: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory for one of three images, results and status equal those of one run."""
    unary = np.random.default_rng(0).normal(size=(3, 2, 3, 2)).astype(np.float32)
    pot = Potentials.grid(unary, 0.4)
    few = {"annealing": {"n_sweeps": 2}, "gibbs": {"n_samples": 2, "burn_in": 1, "keep_samples": True}}
    how: dict[str, Any] = {"backend": "triton"} | few.get(method, {"max_sweeps": 2})
    truth = infer(pot, method, first_image=7, **how)
    module = {"climb_sites": sampling, "pass_messages": message_state}.get(operation, launches)
    kernel, asked = getattr(module, operation), []

    def with_little_memory(model: Any, *given: Any, **named: Any) -> Any:
        asked.append(len(model.unary))
        if len(model.unary) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return kernel(model, *given, **named)

    monkeypatch.setattr(module, operation, with_little_memory)
    mine = infer(pot, method, first_image=7, **how)
    assert asked[:2] == [3, 1]
    assert 2 in asked
    np.testing.assert_array_equal(mine.labels, truth.labels)
    for name in ("probability", "log_partition", "samples"):
        if getattr(truth, name) is not None:
            np.testing.assert_array_equal(getattr(mine, name), getattr(truth, name))
    assert (mine.status, mine.n_sweeps, mine.n_samples) == (truth.status, truth.n_sweeps, truth.n_samples)

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


def test_tensors_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "on_gpu", arrays.is_tensor)  # also for CPU tensors in the interpreter
    rng = np.random.default_rng(1)
    unary, right, down = rng.normal(size=(4, 5, 3)), rng.random((4, 4)), rng.random((3, 5))
    tensors = [torch.from_numpy(array).to(DEVICE) for array in (unary, right, down)]
    pot = Potentials.grid(tensors[0], tuple(tensors[1:]))
    assert torch.is_tensor(pot.unary)
    assert all(torch.is_tensor(w) for w in pot.pairwise.weights or ())
    mine = infer(pot, n_samples=9, backend="triton")
    truth = infer(Potentials.grid(unary, (right, down)), n_samples=9, backend="reference")
    for name in ("labels", "probability", "variance", "entropy"):
        found = getattr(mine, name)
        assert torch.is_tensor(found)
        assert found.device.type == DEVICE
        np.testing.assert_allclose(found.cpu().numpy(), getattr(truth, name), rtol=0, atol=1e-12)
    assert mine.score == pytest.approx(truth.score)
    on_cpu = infer(pot, "exact")
    np.testing.assert_array_equal(on_cpu.labels.cpu().numpy(), infer(pot.to(None), "exact").labels.cpu().numpy())


def test_what_has_no_kernels_is_refused() -> None:
    with pytest.raises(BackendError, match="graph_cut runs on the CPU"):
        infer(odd_model((2, 3), 2, "weight", 1), "graph_cut", backend="triton")


@pytest.mark.parametrize("blocks", ["rows+columns", (2, 2)])
def test_blocks(blocks: Any) -> None:
    compare(odd_model((3, 4), 2, "either sign", 1), "locpmap", blocks=blocks, n_samples=6, probability="conditional")


@pytest.mark.parametrize("form", ["weights", "table"])
def test_gibbs(form: str) -> None:
    compare(odd_model((3, 4), 3, form, 3), "gibbs", n_samples=6, burn_in=2, keep_samples=True)


@pytest.mark.parametrize("start", ["uniform", "unary"])
def test_mean_field(start: str) -> None:
    pot = odd_model((3, 4), 3, "weights", 3)
    mine, truth = (infer(pot, "mean_field", backend=backend, start=start) for backend in ("triton", "reference"))
    np.testing.assert_allclose(mine.probability, truth.probability, rtol=0, atol=1e-4)
    np.testing.assert_allclose(mine.log_partition, truth.log_partition, rtol=0, atol=1e-4)


def test_far_apart_scores_at_a_low_temperature() -> None:
    rng = np.random.default_rng(3)
    compare(Potentials.grid(1e30 * rng.normal(size=(3, 4, 3)), 1.0), "locpmap", n_samples=8, temperature=1e-9)
