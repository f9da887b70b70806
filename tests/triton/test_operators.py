"""Losses by Triton's kernels and operations that torch knows: the same numbers, seen by `torch.compile`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import test_likelihood_kernels as likelihoods
from tests.triton.placing import DEVICE, place, place_model

from locpmap import nn
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.cpu.twins import twin
from locpmap.kernels.observations import Observations
from locpmap.kernels.perturbation import PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference.messages import UNVISITED
from locpmap.kernels.trees import spanning_forests
from locpmap.kernels.triton import operators
from locpmap.nn import fused
from locpmap.nn.composite import _one_label_if_void
from locpmap.nn.potentials import Edges, make_field
from locpmap.potentials import Potentials

STEPS = {"nearest": ((0, 1), (1, 0)), "far": ((0, 1), (1, -2), (3, 0))}
FORMS = ("weight", "table", "weights", "tables", "weights of all images", "tables of all images")


def draw(form: str, shape: tuple[int, int, int, int], steps: Any, dtype: Any = torch.float64) -> tuple[Any, ...]:
    """Logits, pairwise terms that want slopes, and labels, some of them void."""
    n_images, n_labels, height, width = shape
    generator = torch.Generator().manual_seed(n_labels)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=dtype).to(DEVICE).requires_grad_()

    table = (n_labels, n_labels) if "table" in form else ()
    terms = []
    for down, right in steps:
        per_edge = (1 if "all" in form else n_images, max(0, height - down), max(0, width - abs(right)))
        terms.append(normal(*(per_edge if form not in ("weight", "table") else ()), *table))
    labels = torch.randint(-1, n_labels, (n_images, height, width), generator=generator).to(DEVICE)
    return normal(n_images, n_labels, height, width), terms, labels


def check(found: Any, expected: Any, inputs: Any, tolerance: float) -> None:
    """Values and slopes agree."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype).to(DEVICE)
    mine, truth = (torch.autograd.grad(loss, inputs, upstream, retain_graph=True) for loss in (found, expected))
    for one, other in zip(mine, truth, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 2, 1, 1), (3, 5, 1, 7)])
@pytest.mark.parametrize("form", FORMS)
def test_site_losses(form: str, shape: Any, n_samples: int) -> None:
    steps = STEPS["far" if shape == (2, 3, 4, 5) else "nearest"]
    logits, terms, labels = draw(form, shape, steps)
    field = make_field(logits, terms, labels, -1, steps)
    generator = torch.Generator().manual_seed(0)
    samples = torch.randint(-1, shape[1], (n_samples, *labels.shape), generator=generator).to(DEVICE)
    mine, truth = (losses(field, samples) for losses in (fused.site_losses, fused.site_losses_of_operations))
    edges = [edge.values for edge in field.edges if edge.values.numel()]
    check(mine, truth, (field.scores, *edges), 1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 2, 1, 1), (1, 4, 9, 2)])
@pytest.mark.parametrize(
    ("form", "max_sweeps"),
    [
        ("weights", 1),
        *((form, 50) for form in FORMS),
        *(pytest.param(form, 1, marks=pytest.mark.slow) for form in FORMS if form != "weights"),
    ],
)
def test_climbs(form: str, shape: Any, max_sweeps: int) -> None:
    logits, terms, labels = draw(form, shape, STEPS["far"])
    field = make_field(logits.detach(), [term.detach() for term in terms], labels, -1, STEPS["far"])
    generator = torch.Generator().manual_seed(0)
    perturbed = field.scores + torch.randn((3, *field.scores.shape), generator=generator).to(DEVICE)
    start = torch.randint(shape[1], (3, *labels.shape), generator=generator).to(DEVICE).masked_fill(labels == -1, -1)
    found = fused.climb(field, perturbed, start.clone(), max_sweeps)
    assert found.equal(fused.climb_of_operations(field, perturbed, start, max_sweeps))


@pytest.mark.parametrize("shape", [(2, 3, 20, 21), (1, 40, 9, 8)])
def test_climbs_of_many_programs(shape: Any) -> None:
    """An image is more than one tile, and forty labels are more than a warp's."""
    test_climbs("weights", shape, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_lower_precision(dtype: Any) -> None:
    logits, terms, labels = draw("weights", (2, 3, 4, 5), STEPS["nearest"], dtype)
    field = make_field(logits, terms, labels, -1)
    assert field.scores.dtype == torch.float32
    mine, truth = (f(field, labels[None]) for f in (fused.site_losses, fused.site_losses_of_operations))
    check(mine, truth, (field.scores,), 1e-5)


def test_channels_last_and_strided() -> None:
    logits, terms, labels = draw("weight", (2, 3, 4, 5), STEPS["nearest"])
    plain = nn.PseudolikelihoodLoss(ignore_index=-1)(logits, terms, labels)
    last = logits.detach().to(memory_format=torch.channels_last).requires_grad_()
    wide = torch.zeros(2, 4, 4, 9, dtype=torch.float64, device=DEVICE)
    wide[:, :3, :, ::2] = logits.detach()
    strided = wide.requires_grad_()
    (expected,) = torch.autograd.grad(plain, logits)
    for given, view in ((last, last), (strided, strided[:, :3, :, ::2])):
        loss = nn.PseudolikelihoodLoss(ignore_index=-1)(view, terms, labels)
        torch.testing.assert_close(loss, plain)
        (slope,) = torch.autograd.grad(loss, given)
        torch.testing.assert_close(slope if given is last else slope[:, :3, :, ::2], expected)


def test_forbidden_labels() -> None:
    logits, terms, labels = draw("weight", (1, 3, 2, 3), STEPS["nearest"])
    logits = logits.detach()
    logits[:, 2] = -torch.inf
    field = make_field(logits.requires_grad_(), terms, labels.clamp(max=1), -1)
    mine, truth = (f(field, field.labels[None]) for f in (fused.site_losses, fused.site_losses_of_operations))
    check(mine, truth, (field.scores,), 1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 3, 4), (1, 2, 1, 1), (3, 5, 2, 6)])
@pytest.mark.parametrize("form", FORMS)
def test_rows(form: str, shape: Any) -> None:
    """Of rows that void sites cut, with labels on a strided axis as they come from a network."""
    logits, (edges, _), labels = draw(form, shape, STEPS["nearest"])
    alive = labels >= 0
    scores = _one_label_if_void(logits.movedim(1, -1), alive).detach().requires_grad_()
    if edges.shape in ((), (shape[1], shape[1])):
        edges = edges.detach().reshape(1, 1, 1, *edges.shape).requires_grad_()
    given = (scores, Edges(edges), alive[:, :, 1:] & alive[:, :, :-1])
    mine, truth = fused.row_log_partitions(*given), fused.row_log_partitions_of_operations(*given)
    check(mine, truth, (scores, edges) if shape[3] > 1 else (scores,), 1e-12)


@pytest.mark.parametrize("blocks", ["rows", "columns", "rows+columns"])
def test_composite_likelihood(blocks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, terms, labels = draw("tables", (2, 3, 3, 4), STEPS["nearest"])
    loss = nn.CompositeLikelihoodLoss(blocks, ignore_index=-1)
    mine = loss(logits, terms, labels)
    monkeypatch.setattr(fused, "kernels_run_on", lambda device: False)
    check(mine, loss(logits, terms, labels), (logits, *terms), 1e-12)


def test_only_what_is_wanted_has_slopes() -> None:
    logits, terms, labels = draw("table", (1, 3, 2, 3), STEPS["nearest"])
    loss = nn.PseudolikelihoodLoss(ignore_index=-1)
    loss(logits, [terms[0], terms[1].detach()], labels).backward()
    assert logits.grad is not None
    assert terms[0].grad is not None
    assert terms[1].grad is None
    assert not loss(logits.detach(), 1.0, labels).requires_grad


def test_no_second_slopes() -> None:
    logits, terms, labels = draw("weight", (1, 2, 2, 3), STEPS["nearest"])
    loss = nn.PseudolikelihoodLoss(ignore_index=-1)(logits, terms, labels)
    (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="grid_loss_slopes"):
        slope.sum().backward()


@pytest.mark.parametrize("form", ["weight", "tables"])
def test_torch_accepts_the_operators(form: str) -> None:
    logits, terms, labels = draw(form, (2, 3, 3, 4), STEPS["nearest"])
    field = make_field(logits, terms, labels, -1)
    edges = [edge.values.detach().requires_grad_() for edge in field.edges]
    given = (field.scores.detach().requires_grad_(), edges, field.labels, field.labels[None], [0, 1, 1, 0])
    torch.library.opcheck(torch.ops.locpmap.grid_losses.default, given)
    joined = torch.ones(2, 3, 3, dtype=torch.bool, device=DEVICE)
    torch.library.opcheck(torch.ops.locpmap.chain_log_partitions.default, (given[0], edges[0], joined))


LOSSES = [nn.PseudolikelihoodLoss(ignore_index=-1), nn.CompositeLikelihoodLoss("rows", ignore_index=-1)]


@pytest.mark.parametrize("loss", LOSSES, ids=["sites", "rows"])
def test_compiled_whole(loss: Any) -> None:
    logits, terms, labels = draw("weights", (2, 3, 3, 4), STEPS["nearest"], torch.float32)
    whole = torch.compile(loss, fullgraph=True, backend="aot_eager")
    mine, truth = whole(logits, terms, labels), loss(logits, terms, labels)
    torch.testing.assert_close(mine, truth)
    for one, other in zip(*(torch.autograd.grad(value, (logits, *terms)) for value in (mine, truth)), strict=True):
        torch.testing.assert_close(one, other)


def calls() -> dict[str, tuple[Any, ...]]:
    """Arguments of kernels, on a small model."""
    rng = np.random.default_rng(0)
    grid = Potentials.grid(rng.normal(size=(1, 2, 2, 3)), rng.normal(size=(3, 3)))
    model, how = place_model(grid), {"device": DEVICE}
    right, down = (place(rng.random(shape)) for shape in ((1, 2, 1), (1, 1, 2)))
    labels, fresh = (torch.full((1, 4, 2), fill, dtype=torch.uint8, **how) for fill in (0, 77))
    given = torch.zeros(1, 4, dtype=torch.uint8, **how)
    terms, zeros = (torch.zeros(*shape, dtype=torch.float64, **how) for shape in ((1, 4), (1, 4, 3)))
    marks = torch.full((1, 4), UNVISITED, dtype=torch.uint8, **how)
    beliefs, messages = zeros + 1 / 3, torch.full((1, 8, 3), 0.5, dtype=torch.float64, **how)
    couplings = torch.ones(1, 1, 1, 2, dtype=torch.float64, **how)  # where labels differ, and where they agree
    nowhere, everywhere, last = (torch.tensor([flag], **how) for flag in (False, True, 0))
    forests, rho = spanning_forests(grid.model, 1)
    orders, parents = (place(np.stack(arrays)) for arrays in zip(*forests, strict=True))
    whole, noise = (0, 1, 0, 4), Perturbation(PLAIN, 1.0, 3, 4)
    kept = torch.full((2, 1, 4), 77, dtype=torch.int16, **how)
    tiles = plan_blocks((1, 2), grid.structure, 3)
    limits = (True, 0.0, 0.0, *whole, 2, grid.model.class_ptr, (2, 2, 0))
    potts = place_model(Potentials.grid(grid.unary.reshape(1, 2, 2, 3), 1.0))
    climb = (noise, RANDOM, given.long(), 2, 0, 0, 1, 0, fresh)
    start = (RANDOM, given, 0, 0, 2, 2, fresh)
    return {
        "bethe_edges": (model, messages, beliefs.log(), terms, *whole),
        "block_likelihood": learning("tiles"),
        "climb_blocks": (model, tiles, *climb),
        "climb_lines": (model.unary, right, down, True, "rows", noise, 0, 0, *start),
        "climb_potts": (model.unary, right, down, 1.0, 3, 4, 0, 0, *start),
        "climb_sites": (model, *climb),
        "conditionals": (model, labels, zeros, 0, 0, 4),
        "decode_messages": (model, model.order, messages, given.short() + 77, 0, 1),
        "forest_log_partitions": (model, messages, place(rho), orders, parents, terms[:, :1].clone(), 0, 1, 0, 1),
        "gibbs": (model, given.short(), zeros.int(), 1, 1.0, 3, 4, 0, 0, *whole, 2, 1.0, 0, 1, kept),
        "grid_conditionals": (model.unary, right, down, labels, zeros, 0, 4),
        "log_beliefs": (model, messages, None, zeros, terms, *whole),
        "mean_field": (model, beliefs, marks, 1e-3, *whole),
        "mean_field_bound": (model, beliefs, terms, *whole),
        "pass_linear": (potts, potts.order, messages, marks, everywhere, zeros + 1, couplings, *limits[1:]),
        "pass_messages": (model, model.order, messages, marks, nowhere, None, *limits, 0, 0, 1, last.int()),
        "perturb_and_max_product": (model, noise, *[model.order] * 2, 0.0, 9, 0.0, 3, 0, 0, 1, 0, fresh.short()),
        "score_terms": (model, given.long(), terms, *whole),
        "shares": (labels, zeros, given.long() + 77),
        "site_likelihood": learning("3x5"),
        "votes": (labels, zeros.int(), 0, 4),
    }


def learning(case: str) -> tuple[Any, ...]:
    """Arguments of a likelihood's kernel."""
    problem = likelihoods.draw((likelihoods.SITES | likelihoods.BLOCKS)[case])
    data = Observations(*(place(array) for array in problem.data))
    labels = place(problem.labels)
    around = (labels, place(problem.samples)) if problem.case.blocks is None else (problem.plan, labels)
    parts = (problem.importance, problem.weights, problem.tables)
    sums = (np.zeros(1), np.zeros_like(problem.weights), np.zeros_like(problem.tables))
    return data, *around, *map(place, (*parts, *sums)), 0, 1, 0, problem.n_windows


def test_every_operation_is_an_operator() -> None:
    """All that inference and learning ask a backend for and Triton has."""
    package = Path(operators.__file__).parent
    above = [path for layer in ("inference", "learning") for path in (package.parents[1] / layer).glob("*.py")]
    asked = {name for path in above for name in re.findall(r"kernels\.(\w+)", path.read_text())}
    assert {name for name in asked if (package / f"{name}.py").exists()} == set(operators.OPERATIONS) == set(calls())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own, 2.11
@pytest.mark.slow
@pytest.mark.parametrize("name", operators.OPERATIONS)
def test_operators_of_kernels(name: str) -> None:
    """The schema tells what is written to, shapes are right, and the whole can be compiled."""
    operator, parameters = getattr(torch.ops.locpmap, name).default, inspect.signature(operators._kernel(name))
    direct, through, before = (calls()[name] for _ in range(3))
    truth = twin("triton", name)(*direct)
    torch.compiler.reset()  # else one operator after another is the same function, compiled too often
    whole = torch.compile(lambda *flat: operator(*flat), fullgraph=True, backend="aot_eager")
    mine = whole(*operators._flat(parameters.bind(*through).args))
    torch.testing.assert_close(mine, truth, rtol=0, atol=0)
    written = set()
    for argument, one, other, old in zip(parameters.parameters, through, direct, before, strict=False):
        if torch.is_tensor(one):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
            written |= set() if torch.equal(one, old) else {argument}
    assert written == set(operators.OPERATIONS[name].written)
    flat = tuple(operators._flat(parameters.bind(*before).args))
    torch.library.opcheck(operator, flat, test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))


def test_kernels_in_a_compiled_function() -> None:
    count = operators.operator("votes")

    @torch.compile(fullgraph=True, backend="aot_eager")
    def shares(labels: Any) -> Any:
        totals = torch.zeros(*labels.shape[:2], 3, dtype=torch.int32, device=labels.device)
        torch.ops.locpmap.votes(labels, totals, 0, labels.shape[1])
        return totals / labels.shape[2]

    labels = torch.randint(0, 3, (2, 5, 7), dtype=torch.uint8).to(DEVICE)
    totals = torch.zeros(2, 5, 3, dtype=torch.int32, device=DEVICE)
    count(labels, totals, 0, 5)
    torch.testing.assert_close(shares(labels), totals / 7)
