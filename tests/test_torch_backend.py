"""The plain torch operations do what the reference does, on odd shapes, and `infer` takes them by name."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import random_unary, structure_edges
from tests.test_backends import FORMS, SHAPES, odd_model, options
from tests.test_messages import ODD, normal

from locpmap import Factored, arrays, kernels
from locpmap.errors import BackendError, InputError
from locpmap.graphs.blocks import plan_blocks
from locpmap.inference import DECODERS, infer, placement
from locpmap.inference.lbp import linear_domain
from locpmap.inference.trees import breadth_first, spanning_forests
from locpmap.kernels import Backend, Model, choose_backend
from locpmap.kernels.perturbation import DROP, GIVEN, LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.gibbs import CONDITIONAL, NOTHING, VOTES
from locpmap.kernels.reference.messages import CHANGED, UNVISITED
from locpmap.potentials import Potentials

torch = pytest.importorskip("torch")

OPERATIONS = (
    *("climb_sites", "climb_potts", "climb_blocks", "votes", "conditionals", "gibbs", "mean_field", "mean_field_bound"),
    *("pass_messages", "pass_linear", "log_beliefs", "bethe_edges", "forest_log_partitions", "decode_messages"),
    *("perturb_and_max_product", "score_terms"),
)
TRUTH, MINE = (
    SimpleNamespace(**{name: getattr(Backend(backend), name) for name in OPERATIONS})
    for backend in ("reference", "torch")
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KEY = (0x9ABCDEF0, 2**32 - 3)
R = 9
STARTS = (RANDOM, PERTURBED, GIVEN)


def place(array: Any) -> Any:
    """A NumPy array as a tensor of its own on the device."""
    return torch.from_numpy(np.array(array)).to(DEVICE)


def place_model(potentials: Potentials) -> Model:
    """The flat arrays as tensors, all numbers in the unaries' precision."""
    return potentials.to(DEVICE).model


def host(tensor: Any) -> Any:
    return tensor.cpu().numpy()


def odd_graph(form: str, n_labels: int = 3) -> Potentials:
    """Two images on a star of 13 sites, edges turned either way: degrees of 1 and of 12."""
    rng = np.random.default_rng(n_labels)
    edges = structure_edges("star", 13, rng)
    edges = np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1])
    pairwise: Any = {
        "weights": rng.normal(size=len(edges)),
        "tables": rng.normal(size=(len(edges), n_labels, n_labels)),
        "factored": Factored(rng.random((2, len(edges), 3)), rng.normal(size=(3, n_labels, n_labels))),
    }[form]
    return Potentials.graph(random_unary((2, 13), n_labels, 0.2, rng), edges, pairwise)


CASES = {f"{form} {shape}": odd_model(shape, 3, form, 3) for form in FORMS for shape in SHAPES[1:]}
CASES |= {f"graph with {form}": odd_graph(form) for form in ("weights", "tables", "factored")}
SOME = ["weights (5, 7)", "hard tables (5, 7)", "graph with factored"]


def test_a_hub_does_not_lengthen_the_lists_of_its_whole_class() -> None:
    from locpmap.kernels.torch.neighbours import class_parts

    edges = np.stack([np.zeros(300, int), np.arange(1, 301)], axis=1)
    pot = Potentials.graph(np.zeros((1000, 2)), edges, 1.0)  # 699 sites without neighbours
    parts = class_parts(place_model(pot), 0, 1000)
    assert sum(part.slots.numel() for part in parts) < 2 * len(edges) + 8 * 1000


# noise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n_labels", "scheme"),
    [(1, PLAIN), (2, PLAIN), (5, PLAIN), (2, LOGISTIC), (3, 4), (5, 4), (21, 4), (3, DROP), (4, NONE)],
)
def test_noise_and_starts(n_labels: int, scheme: int, dtype: Any) -> None:
    from locpmap.kernels.reference.climb_sites import perturbed, start_labels
    from locpmap.kernels.torch.perturbing import LAZY, begin, perturb

    rng = np.random.default_rng(n_labels)
    unary = (2 * rng.normal(size=(2, 3, 5, n_labels))).astype(dtype)
    unary[..., 1:][rng.random((2, 3, 5, n_labels - 1)) < 0.2] = -np.inf
    pot = Potentials.grid(unary, 1.0, window=(3, 2, 2**33))
    amount, first_image, first_sample = 0.5, 4, 126  # samples on both sides of a call of Philox that 128 share
    how, model = Perturbation(scheme, amount, *KEY), place_model(pot)
    found = perturb(model.unary, model.site_id, how, first_image, first_sample, R)
    labels = torch.empty((2, 15, R), dtype=torch.uint8, device=DEVICE)
    begin(model.unary, found, model.site_id, how, RANDOM, labels[:, :, 0], first_image, first_sample, labels)
    where = pot.model.site_id
    # Noise and unaries are of order 10; logarithms of logarithms lose a few more digits.
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    for n in range(2):
        for s in range(R):
            image, sample = first_image + n, first_sample + s
            if scheme == LAZY:
                scores = noise.perturbed_lazy(pot.unary[n].astype(np.float64), amount, KEY, image, sample, where)
                start = noise.lazy_start(pot.unary[n], KEY, image, sample, where)
            else:
                scores = perturbed(pot.unary[n], how, image, sample, where)
                start = start_labels(pot.unary[n], how, image, sample, where)
            np.testing.assert_allclose(host(found[n, :, :, s]), scores, rtol=0, atol=tolerance)
            np.testing.assert_array_equal(host(labels[n, :, s]), start)


# climbs, votes, conditionals


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_climbs_of_sites(shape: tuple[int, int], form: str) -> None:
    turn = 7 * SHAPES.index(shape) + FORMS.index(form)
    n_labels = (1, 2, 3, 5)[turn % 4]
    pot = odd_model(shape, n_labels, form, turn)
    how = Perturbation((NONE, PLAIN, DROP)[turn % 3], 0.5, *KEY)
    start, max_sweeps = STARTS[turn // 3 % 3], (100, 2)[turn % 2]
    given = pot.unary.argmax(axis=2)
    lo = 1 if pot.n_images > 1 else 0
    labels = np.zeros((pot.n_images - lo, pot.n_sites, R), np.int16)
    part = (5, lo, pot.n_images, 3)
    sweeps = TRUTH.climb_sites(pot.model, how, start, given, max_sweeps, *part, labels)
    model, found = place_model(pot), place(np.zeros_like(labels))
    made = MINE.climb_sites(model, how, start, place(given), max_sweeps, *part, found)
    np.testing.assert_array_equal(host(found), labels)
    np.testing.assert_array_equal(host(made), sweeps)

    sums, counts = (np.zeros((len(labels), pot.n_sites, n_labels), np.int64) for _ in range(2))
    mine = [place(sums), place(counts)]
    TRUTH.conditionals(pot.model, labels, sums, lo, 0, pot.n_sites)
    MINE.conditionals(model, found, mine[0], lo, 0, pot.n_sites)
    assert np.abs(host(mine[0]) - sums).max() <= R * 2**6  # of 2^40: rounding in double precision
    TRUTH.votes(labels, counts, 0, pot.n_sites - 1)
    MINE.votes(found, mine[1], 0, pot.n_sites - 1)
    np.testing.assert_array_equal(host(mine[1]), counts)


@pytest.mark.parametrize("n_labels", [2, 3, 5, 21])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 7)], ids=str)
def test_climbs_on_potts_grids(shape: tuple[int, int], n_labels: int) -> None:
    rng = np.random.default_rng(n_labels)
    height, width = shape
    unary = 2 * rng.normal(size=(2, height * width, n_labels))
    right, down = rng.random((2, height, width - 1)), rng.random((1, height - 1, width))
    given = rng.integers(0, n_labels, (2, height * width)).astype(np.uint8)
    start, max_sweeps = STARTS[(height + n_labels) % 3], (100, 2)[width % 2]
    how, window = (0.5, *KEY, 3, 6, start), (3, 2, 20, max_sweeps)
    labels = np.zeros((2, height * width, R), np.uint8)
    sweeps = TRUTH.climb_potts(unary, right, down, *how, given, *window, labels)
    found = place(np.zeros_like(labels))
    made = MINE.climb_potts(place(unary), place(right), place(down), *how, place(given), *window, found)
    np.testing.assert_array_equal(host(found), labels)
    np.testing.assert_array_equal(host(made), sweeps)


def check_blocks(pot: Potentials, blocks: Any, scheme: int = PLAIN, start: int = RANDOM, max_sweeps: int = 50) -> None:
    """Labels and sweeps are the reference's; of a batch, the first image is left out."""
    model, (n_images, n_sites, n_labels) = pot.model, pot.unary.shape
    lo = 1 if n_images > 1 else 0
    plan = plan_blocks(blocks, pot.structure, n_labels)
    how = (plan, Perturbation(scheme, 0.7, *KEY), start)
    given = np.random.default_rng(1).integers(n_labels, size=(n_images, n_sites))
    labels, part = np.empty((n_images - lo, n_sites, 3), np.int16), (max_sweeps, 4, lo, n_images, 2)
    sweeps = TRUTH.climb_blocks(model, *how, given, *part, labels)
    found = torch.full(labels.shape, 77, dtype=torch.int16, device=DEVICE)
    made = MINE.climb_blocks(place_model(pot), *how, place(given), *part, found)
    np.testing.assert_array_equal(host(found), labels)
    np.testing.assert_array_equal(host(made), sweeps)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("blocks", ["rows", "rows+columns", (2, 1), (1, 3)], ids=str)
def test_climbs_of_blocks(blocks: Any, form: str) -> None:
    turn = FORMS.index(form) + len(str(blocks))
    shape, n_labels = [(3, 4), (1, 7), (5, 1), (2, 3)][turn % 4], (2, 3, 1)[turn % 3]
    check_blocks(odd_model(shape, n_labels, form, turn), blocks, start=STARTS[turn // 2 % 3])


@pytest.mark.parametrize(("scheme", "start"), [(NONE, RANDOM), (LOGISTIC, RANDOM), (DROP, PERTURBED)])
@pytest.mark.parametrize("blocks", ["rows", (1, 2)], ids=str)
def test_climbs_of_blocks_in_other_schemes(scheme: int, start: int, blocks: Any) -> None:
    check_blocks(odd_model((2, 3), 2, "either sign", 1), blocks, scheme, start)


@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_climbs_of_trees_beside_small_blocks(forbidden: float) -> None:
    rng = np.random.default_rng(4)
    edges = structure_edges("tree", 17, rng)
    tables = 2 * rng.normal(size=(len(edges), 3, 3))
    tables[rng.random(tables.shape) < forbidden] = -np.inf
    pot = Potentials.graph(random_unary((17,), 3, forbidden, rng), edges, tables)
    blocks = [list(range(13)), [14, 16]]
    assert set(plan_blocks(blocks, pot.structure, 3).joint.tolist()) == {False, True}
    check_blocks(pot, blocks)


def test_climbs_of_blocks_of_eight_neighbours_one_sweep_long() -> None:
    pot = Potentials.grid(np.random.default_rng(3).normal(size=(3, 3, 2)), 0.6, connectivity=8)
    check_blocks(pot, (2, 2), max_sweeps=1)
    check_blocks(pot, "rows", max_sweeps=1)


# chains and mean field


def chain(pot: Potentials, adds: int, temperature: float = 1.0, part: Any = None) -> None:
    """Labels and totals after a sweep; part: (lo, hi, begin, stop)."""
    n_images, n_sites, n_labels = pot.unary.shape
    labels = np.random.default_rng(1).integers(n_labels, size=(n_images, n_sites))
    totals = np.full(pot.unary.shape, 0.25)
    mine, sums = place(labels), place(totals)
    how = (adds, temperature, *KEY, 3, 5, *(part or (0, n_images, 0, n_sites)))
    TRUTH.gibbs(pot.model, labels, totals, *how)
    MINE.gibbs(place_model(pot), mine, sums, *how)
    np.testing.assert_array_equal(host(mine), labels)
    np.testing.assert_allclose(host(sums), totals, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_gibbs(case: str) -> None:
    turn = len(case)
    chain(CASES[case], (VOTES, CONDITIONAL)[turn % 2], (1.0, 0.3, 2.5)[turn % 3])


@pytest.mark.parametrize("case", SOME)
def test_gibbs_on_a_part_of_the_images_and_of_a_class(case: str) -> None:
    chain(CASES[case], VOTES, part=(1, 2, 2, 11))
    chain(CASES[case], NOTHING, 1e-50, part=(0, 1, 3, 9))


@pytest.mark.parametrize("adds", [NOTHING, VOTES, CONDITIONAL])
def test_a_site_without_an_allowed_label_keeps_the_one_it_has(adds: int) -> None:
    """Next to label 2 nothing is allowed: so the first class keeps its labels, and the second too."""
    table = np.zeros((3, 3))
    table[2] = table[:, 2] = -np.inf
    model = place_model(Potentials.grid(np.zeros((1, 2, 2, 3)), table))
    labels, totals = place(np.full((1, 4), 2)), place(np.zeros((1, 4, 3)))
    MINE.gibbs(model, labels, totals, adds, 1.0, *KEY, 0, 0, 0, 1, 0, 4)
    np.testing.assert_array_equal(host(labels), 2)
    expected = np.broadcast_to([0.0, 0.0, 0.0 if adds == NOTHING else 1.0], (1, 4, 3))
    np.testing.assert_array_equal(host(totals), expected)
    sums = place(np.zeros((1, 4, 3), np.int64))
    MINE.conditionals(model, labels[:, :, None], sums, 0, 0, 4)
    np.testing.assert_array_equal(host(sums), np.broadcast_to([0, 0, 2**40], (1, 4, 3)))


@pytest.mark.parametrize("adds", [VOTES, CONDITIONAL])
def test_several_sweeps_of_gibbs_are_one_after_another(adds: int) -> None:
    pot = CASES["weights (5, 7)"]
    model, shape = place_model(pot), (3, 35)
    labels, totals = place(np.zeros(shape, np.int64)), place(np.zeros((3, 35, 3)))
    kept = place(np.zeros((3, *shape), np.int16))
    part = (5, 0, 3, 0, 35)
    MINE.gibbs(
        model, labels, totals, adds, 2.0, *KEY, 4, *part, n_sweeps=7, cooling=0.5, first_counted=6, thin=2, kept=kept
    )
    one, sums, met = place(np.zeros(shape, np.int64)), place(np.zeros((3, 35, 3))), []
    for number in range(7):
        counts = number in (2, 4, 6)
        MINE.gibbs(model, one, sums, adds if counts else NOTHING, 2.0 * 0.5**number, *KEY, 4 + number, *part)
        met += [one.clone()] if counts else []
    torch.testing.assert_close(labels, one, rtol=0, atol=0)
    torch.testing.assert_close(totals, sums, rtol=0, atol=0)
    torch.testing.assert_close(kept.long(), torch.stack(met), rtol=0, atol=0)


def some_beliefs(pot: Potentials) -> Any:
    weights = np.random.default_rng(2).random(pot.unary.shape) * (pot.unary > -np.inf)
    return weights / weights.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("case", CASES)
def test_mean_field(case: str) -> None:
    """Two sweeps, the second of what the first has marked, and the bound."""
    pot, model = CASES[case], place_model(CASES[case])
    beliefs, dirty = some_beliefs(pot), np.full(pot.unary.shape[:2], UNVISITED, np.uint8)
    dirty[0, 1:] = CHANGED
    mine, marks = place(beliefs), place(dirty)
    part = (0, pot.n_images, 0, pot.n_sites)
    # Where every label of a site meets forbidden mass, scores of -1e9 leave seven decimals for the rest.
    within = 1e-6 if case.startswith("hard") else 1e-9
    for _ in range(2):
        TRUTH.mean_field(pot.model, beliefs, dirty, 5e-2, *part)
        assert int(MINE.mean_field(model, mine, marks, 5e-2, *part)) == 1
        np.testing.assert_array_equal(host(marks), dirty)
        np.testing.assert_allclose(host(mine), beliefs, rtol=0, atol=within)
    terms, found = np.zeros(dirty.shape), place(np.zeros(dirty.shape))
    TRUTH.mean_field_bound(pot.model, beliefs, terms, *part)
    MINE.mean_field_bound(model, place(beliefs), found, *part)
    np.testing.assert_allclose(host(found), terms, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", SOME)
def test_mean_field_on_a_part_of_the_images_and_of_a_class(case: str) -> None:
    pot = CASES[case]
    beliefs, dirty = some_beliefs(pot), np.full(pot.unary.shape[:2], UNVISITED, np.uint8)
    mine, marks = place(beliefs), place(dirty)
    TRUTH.mean_field(pot.model, beliefs, dirty, 1e-3, 1, 2, 2, 11)
    MINE.mean_field(place_model(pot), mine, marks, 1e-3, 1, 2, 2, 11)
    np.testing.assert_array_equal(host(marks), dirty)
    np.testing.assert_allclose(host(mine), beliefs, rtol=0, atol=1e-6)


def test_several_sweeps_of_mean_field_stop_where_nothing_is_marked() -> None:
    pot = CASES["weights (5, 7)"]
    beliefs, dirty = some_beliefs(pot), np.full(pot.unary.shape[:2], UNVISITED, np.uint8)
    mine, marks = place(beliefs), place(dirty)
    sweeps = 0
    while dirty.any():
        TRUTH.mean_field(pot.model, beliefs, dirty, 1e-2, 0, 3, 0, 35)
        sweeps += 1
    made = MINE.mean_field(place_model(pot), mine, marks, 1e-2, 0, 3, 0, 35, n_sweeps=100)
    assert int(made) == sweeps > 2
    np.testing.assert_allclose(host(mine), beliefs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_scores_of_labellings(case: str) -> None:
    pot = CASES[case]
    labels = np.random.default_rng(1).integers(3, size=pot.unary.shape[:2])
    terms = np.full(labels.shape, 7.0)
    found = place(terms)
    part = (0, pot.n_images, 1, pot.n_sites - 1)
    TRUTH.score_terms(pot.model, labels, terms, *part)
    MINE.score_terms(place_model(pot), place(labels), found, *part)
    np.testing.assert_allclose(host(found), terms, rtol=1e-12, atol=1e-12)


# messages


def whole(pot: Potentials) -> tuple[int, int, int, int]:
    return 0, pot.n_images, 0, pot.n_sites


def sent(
    pot: Potentials, parts: list[Any], rho: Any, *how: Any, order: Any = None, linear: Any = None
) -> tuple[list[Any], list[Any]]:
    """Messages and marks of the reference and of torch after visiting the given images and positions in turn."""
    linear = np.zeros(pot.n_images, bool) if linear is None else linear
    model = place_model(pot)
    messages = np.zeros((pot.n_images, 2 * len(pot.model.edges), pot.n_labels))
    dirty = np.full((pot.n_images, pot.n_sites), UNVISITED, np.uint8)
    mine, marks = place(messages.astype(pot.unary.dtype)), place(dirty)
    chosen, placed = (pot.model.order, model.order) if order is None else (order, place(order))
    for part in parts:
        TRUTH.pass_messages(pot.model, chosen, messages, dirty, linear, rho, *how, *part)
        MINE.pass_messages(model, placed, mine, marks, place(linear), place(rho), *how, *part)
    return [messages, dirty], [host(mine), host(marks)]


def check_sent(truth: list[Any], mine: list[Any], rounding: float = 1e-12) -> None:
    """The same messages up to rounding (of the largest), and the same marks."""
    scale = np.abs(truth[0][np.isfinite(truth[0])]).max(initial=1.0)
    np.testing.assert_allclose(mine[0], truth[0], rtol=rounding, atol=rounding * scale)
    np.testing.assert_array_equal(mine[1], truth[1])


MESSAGES = {case: pot for case, pot in ODD.items() if pot.n_labels > 1}  # of one label, a message is only a constant


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(case: str) -> None:
    pot = MESSAGES[case]
    n_edges = len(pot.model.edges)
    check_sent(*sent(pot, [whole(pot)] * 2, spanning_forests(pot.model, 3)[1], False, 0.3, 1e-9))
    check_sent(*sent(pot, [whole(pot)] * 2, np.ones(n_edges), True, 0.0, 1e-9))
    check_sent(*sent(pot, [whole(pot)] * 2, np.ones(n_edges), True, 0.3, 0.05))


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("case", ["primes", "forbidden pairs"])
def test_messages_in_single_precision(case: str, maximise: bool) -> None:
    pot = replace(MESSAGES[case], unary=MESSAGES[case].unary.astype(np.float32))
    check_sent(*sent(pot, [whole(pot)] * 2, np.ones(len(pot.model.edges)), maximise, 0.3, 1e-3), 2e-6)


@pytest.mark.parametrize("case", ["batch", "table per edge and image"])
def test_messages_of_parts_of_the_images_and_of_the_order(case: str) -> None:
    pot = MESSAGES[case]
    parts = [(0, 2, 1, pot.n_sites - 1), (1, pot.n_images, 2, 3), (0, 1, 0, 2), (1, 1, 0, 2), (0, 2, 3, 3)]
    linear = np.arange(pot.n_images) == 0
    truth, mine = sent(pot, parts, np.ones(len(pot.model.edges)), False, 0.0, 0.0, linear=linear)
    check_sent(truth, mine)
    assert (truth[1] == UNVISITED).any()


@pytest.mark.parametrize("case", ["nx1", "primes", "table"])
def test_messages_in_any_other_order(case: str) -> None:
    """From leaves to roots and back, where neighbours follow each other: as if one by one."""
    pot = MESSAGES[case]
    outward = breadth_first(pot.model).order
    order = np.concatenate([outward[::-1], outward])
    rho = np.ones(len(pot.model.edges))
    check_sent(*sent(pot, [(0, pot.n_images, 1, len(order))], rho, False, 0.0, 1e-9, order=order))


@pytest.mark.parametrize("weight", [-1e6, -40.0, -1e-9, 0.0, 1e-9, 39.0, 41.0, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_potts_messages_lose_nothing(weight: float, spread: float) -> None:
    unary = np.array([[0.0, -0.3, -0.7, -1.0], [0.1, 0.0, 0.2, 0.3]]) * spread
    pot = Potentials.graph(unary, [[0, 1]], weight)
    for maximise in (False, True):
        truth, mine = sent(pot, [whole(pot)], np.ones(1), maximise, 0.0, 0.0)
        rounding = 4 * np.finfo(float).eps * (1 + spread + abs(weight))
        np.testing.assert_allclose(mine[0], truth[0], rtol=1e-13, atol=rounding)


LINEAR = {case: pot for case, pot in ODD.items() if linear_domain(pot.model)[1].all()}
LINEAR |= {  # sites sure of one label, and neighbours that must not (or must) share it
    f"cancelling {weight}": Potentials.graph(normal(5, 3, scale=60.0), [[0, 1], [1, 2], [2, 3], [3, 4]], weight)
    for weight in (-60.0, 60.0)
}


@pytest.mark.parametrize("damping", [0.0, 0.2])
@pytest.mark.parametrize("case", LINEAR)
def test_messages_without_logarithms(case: str, damping: float) -> None:
    pot, model = LINEAR[case], place_model(LINEAR[case])
    couplings, _ = linear_domain(pot.model)
    weights = np.exp(pot.unary - pot.unary.max(axis=2, keepdims=True))
    messages = np.ones((pot.n_images, 2 * len(pot.model.edges), pot.n_labels))
    dirty = np.full((pot.n_images, pot.n_sites), UNVISITED, np.uint8)
    linear = np.arange(pot.n_images) < 2
    mine, marks = place(messages), place(dirty)
    given, placed = (linear, weights, couplings), (place(linear), place(weights), place(couplings))
    for _ in range(2):
        TRUTH.pass_linear(pot.model, pot.model.order, messages, dirty, *given, damping, 1e-2, *whole(pot))
        MINE.pass_linear(model, model.order, mine, marks, *placed, damping, 1e-2, *whole(pot))
    np.testing.assert_allclose(host(mine), messages, rtol=1e-12)
    np.testing.assert_array_equal(host(marks), dirty)


def test_several_sweeps_of_messages_stop_where_nothing_is_marked() -> None:
    pot, model = ODD["primes"], place_model(ODD["primes"])
    messages = torch.zeros((1, 2 * len(pot.model.edges), 3), dtype=torch.float64, device=DEVICE)
    dirty = torch.full((1, 15), UNVISITED, dtype=torch.uint8, device=DEVICE)
    nowhere = torch.zeros(1, dtype=torch.bool, device=DEVICE)
    state, limits = (model, model.order, messages, dirty, nowhere, None, False, 0.3, 1e-4, *whole(pot)), {"undamped": 3}
    first = MINE.pass_messages(*state, **limits, n_sweeps=4)
    assert first.tolist() == [1] * 5
    many = MINE.pass_messages(*state, **limits, n_sweeps=200, made=4).tolist()
    one_by_one, marks = torch.zeros_like(messages), torch.full_like(dirty, UNVISITED)
    sweeps = 0
    while marks.any():
        damping = 0.3 if sweeps >= 3 else 0.0
        state = (model, model.order, one_by_one, marks, nowhere, None, False, damping, 1e-4, *whole(pot))
        MINE.pass_messages(*state)
        sweeps += 1
    assert many == [1] * (sweeps - 4) + [0] * (205 - sweeps)
    torch.testing.assert_close(messages, one_by_one, rtol=0, atol=0)


def random_messages(pot: Potentials, share: float = 0.0) -> Any:
    rng = np.random.default_rng(7)
    messages = -rng.random((pot.n_images, 2 * len(pot.model.edges), pot.n_labels))
    messages[rng.random(messages.shape) < share] = -np.inf
    return messages


@pytest.mark.parametrize("case", MESSAGES)
def test_what_is_read_off_messages(case: str) -> None:
    """Beliefs, the edges' part of the Bethe approximation, forests' log Z, and a labelling."""
    pot, model = MESSAGES[case], place_model(MESSAGES[case])
    messages = random_messages(
        pot, {"forbidden labels": 0.1, "forbidden pairs": 0.1, "nothing allowed": 0.6}.get(case, 0)
    )
    said, part = place(messages), whole(pot)
    forests, rho = spanning_forests(pot.model, 3)
    beliefs, normalisers = np.zeros(pot.unary.shape), np.zeros(pot.unary.shape[:2])
    mine = [place(beliefs), place(normalisers)]
    TRUTH.log_beliefs(pot.model, messages, rho, beliefs, normalisers, *part)
    MINE.log_beliefs(model, said, place(rho), *mine, *part)
    scale = np.abs(pot.unary[np.isfinite(pot.unary)]).max()
    close = {"rtol": 1e-12, "atol": 1e-12 * scale}
    np.testing.assert_allclose(host(mine[0]), beliefs, **close)
    np.testing.assert_allclose(host(mine[1]), normalisers, **close)

    terms = np.zeros(normalisers.shape)
    found = place(terms)
    TRUTH.bethe_edges(pot.model, messages, beliefs, terms, *part)
    MINE.bethe_edges(model, said, place(beliefs), found, *part)
    np.testing.assert_allclose(host(found), terms, **close)

    orders, parents = (np.stack(arrays) for arrays in zip(*forests, strict=True))
    values = np.zeros((pot.n_images, len(forests)))
    found = place(values)
    TRUTH.forest_log_partitions(pot.model, messages, rho, orders, parents, values, 0, pot.n_images, 0, len(forests))
    how = (place(rho), place(orders), place(parents), found, 0, pot.n_images, 0, len(forests))
    MINE.forest_log_partitions(model, said, *how)
    np.testing.assert_allclose(host(found), values, rtol=1e-11, atol=1e-11 * scale)

    order = breadth_first(pot.model).order
    labels = np.zeros(pot.unary.shape[:2], np.int64)
    found = place(labels)
    TRUTH.decode_messages(pot.model, order, messages, labels, 0, pot.n_images)
    MINE.decode_messages(model, place(order), said, found, 0, pot.n_images)
    np.testing.assert_array_equal(host(found), labels)


@pytest.mark.parametrize("case", ["1xn", "primes", "batch", "table per edge and image", "forbidden pairs"])
def test_max_product_on_perturbed_unaries(case: str) -> None:
    pot, model = MESSAGES[case], place_model(MESSAGES[case])
    outward = breadth_first(pot.model).order
    lo = pot.n_images - 1
    labels = np.zeros((1, pot.n_sites, 4), np.int16)
    found = place(labels)
    limits, part = (0.3, 2, 1e-3, 20), (3, lo, pot.n_images, 5)
    how = Perturbation(PLAIN, 0.8, *KEY)
    sweeps = TRUTH.perturb_and_max_product(pot.model, how, pot.model.order, outward, *limits, *part, labels)
    made = MINE.perturb_and_max_product(model, how, model.order, place(outward), *limits, *part, found)
    np.testing.assert_array_equal(host(found), labels)
    np.testing.assert_array_equal(host(made), sweeps)


# infer


def compare(pot: Potentials, method: str, **how: Any) -> None:
    mine = infer(pot, method, backend="torch", device=DEVICE, **how)
    truth = infer(pot, method, backend="reference", **how)
    np.testing.assert_array_equal(mine.labels, truth.labels)
    for name in ("probability", "log_partition", "samples"):
        expected = getattr(truth, name)
        if expected is not None:
            np.testing.assert_allclose(getattr(mine, name), expected, rtol=0, atol=1e-9)
    assert (mine.n_sweeps, mine.status, mine.noise) == (truth.n_sweeps, truth.status, truth.noise)
    assert (mine.backend, mine.device) == ("torch", DEVICE)


@pytest.mark.parametrize("turn", range(12))
def test_locpmap(turn: int) -> None:
    pot = odd_model([(1, 1), (2, 3), (5, 7)][turn % 3], (2, 3, 2, 5)[turn % 4], FORMS[turn % 6], turn)
    compare(pot, "locpmap", **options(pot, turn), n_samples=10, seed=turn, keep_samples=turn % 2 == 0)


@pytest.mark.parametrize("form", ["weights", "table"])
@pytest.mark.parametrize("method", [name for name, decoder in DECODERS.items() if decoder.on_gpu])
def test_every_method_that_takes_tensors(method: str, form: str) -> None:
    compare(odd_model((3, 4), 3, form, 3), method)


@pytest.mark.parametrize("method", ["lbp", "max_product", "trw", "perturb_and_max_product"])
def test_messages_on_a_tree(method: str) -> None:
    compare(odd_model((1, 7), 3, "table", 3), method)


def test_blocks_masks_and_graphs() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((4, 5)) < 0.3
    compare(Potentials.grid(rng.normal(size=(4, 5, 3)), 0.7, mask=mask), "locpmap", n_samples=8, blocks="rows")
    pot = Potentials.graph(rng.normal(size=(2, 5, 3)), [[0, 1], [1, 2], [2, 0], [2, 3]], rng.normal(size=4))
    compare(pot, "locpmap", n_samples=8, probability="conditional")


def test_tensors_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "on_gpu", arrays.is_tensor)  # as if the CPU were an accelerator
    monkeypatch.setattr(placement, "on_gpu", arrays.is_tensor)
    rng = np.random.default_rng(1)
    unary, right, down = rng.normal(size=(4, 5, 3)), rng.random((4, 4)), rng.random((3, 5))
    pot = Potentials.grid(place(unary), (place(right), place(down)))
    mine = infer(pot, n_samples=9, backend="torch")
    truth = infer(Potentials.grid(unary, (right, down)), n_samples=9, backend="reference")
    assert mine.device == DEVICE
    for name in ("labels", "probability", "variance", "entropy"):
        found = getattr(mine, name)
        assert found.device.type == DEVICE
        np.testing.assert_allclose(host(found), getattr(truth, name), rtol=0, atol=1e-12)


class NoDoubles(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
    """Refuses what a device without double precision refuses."""

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.lift_fresh.default:  # of NumPy, still on the host
            return result
        for found in result if isinstance(result, tuple | list) else (result,):
            assert not torch.is_tensor(found) or found.dtype != torch.float64, f"{func} made a tensor of doubles"
        return result


@pytest.mark.parametrize("method", [name for name, decoder in DECODERS.items() if decoder.on_gpu])
def test_devices_without_double_precision(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (arrays, placement):
        monkeypatch.setattr(where, "on_gpu", arrays.is_tensor)
    monkeypatch.setattr(arrays, "SINGLE_ONLY", (DEVICE,))
    rng = np.random.default_rng(1)
    unary, weights = rng.normal(size=(4, 5, 3)).astype(np.float32), [rng.random(s) for s in ((4, 4), (3, 5))]
    how: dict[str, Any] = {"probability": "conditional"} if method in ("locpmap", "gibbs") else {}
    there = place(unary)
    with NoDoubles():
        mine = infer(Potentials.grid(there, tuple(weights)), method, backend="torch", **how)
        assert mine.labels.device.type == DEVICE
    truth = infer(Potentials.grid(unary, tuple(weights)), method, backend="reference", **how)
    if truth.probability is not None:
        np.testing.assert_allclose(host(mine.probability), truth.probability, rtol=0, atol=2e-5)


# where it runs


def test_a_named_device_runs_or_raises() -> None:
    assert (choose_backend("torch", "cpu").name, choose_backend("torch", "cpu").device) == ("torch", "cpu")
    assert choose_backend("torch", "auto").device == "cpu"
    assert choose_backend("torch", "auto", DEVICE).device == DEVICE
    absent = [name for name in ("cuda", "cuda:77", "mps", "xpu") if name != DEVICE]
    for name in absent:
        with pytest.raises(BackendError, match=f"device='{name}'.* torch cannot use it"):
            choose_backend("torch", name)
    with pytest.raises(BackendError, match=r"device='mps'.*'numba' runs on the CPU: use 'torch'"):
        choose_backend("numba", "mps")
    with pytest.raises(BackendError, match="device='mps' is not one"):
        choose_backend("triton", "mps")


@pytest.mark.parametrize(
    ("device", "hint"),
    [
        ("gpu", "did you mean 'cuda'?"),
        ("mp", "did you mean 'mps'?"),
        ("cudaa", "did you mean 'cuda'?"),
        ("meta", "unknown device 'meta'"),
        ("meta:0", "unknown device 'meta:0'"),
        ("cuda:x", "did you mean 'cuda'?"),
        (7, "known are auto, cpu, cuda, mps, xpu"),
    ],
)
def test_an_unknown_device_is_one_clear_error(device: Any, hint: str) -> None:
    for backend in ("auto", "torch", "numba"):
        with pytest.raises(InputError, match=re.escape(hint)):
            choose_backend(backend, device)


def test_what_is_chosen_for_tensors_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_torch_device", str)
    monkeypatch.setattr(kernels, "_triton_device", str)
    packages = {"torch", "triton"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in packages else None)

    def chosen(*where: Any) -> tuple[str, str | None]:
        backend = choose_backend(*where)
        return backend.name, backend.device

    assert chosen("auto", "auto") == ("numba", None)
    assert chosen("auto", "auto", "mps") == chosen("auto", "mps") == ("torch", "mps")
    assert chosen("auto", "auto", "cuda") == chosen("auto", "cuda") == ("triton", "cuda")
    assert chosen("auto", "cuda:1") == ("triton", "cuda:1")
    assert chosen("auto", "cpu", "mps") == chosen("numba", "auto", "mps") == ("numba", None)
    assert chosen("torch", "auto", "cuda") == ("torch", "cuda")
    assert chosen("triton", "auto") == ("triton", "cuda")
    packages.discard("triton")
    assert chosen("auto", "auto", "cuda") == chosen("auto", "cuda") == ("torch", "cuda")
