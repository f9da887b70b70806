"""Potentials: every form of the pairwise term, masks and forbidden labels, compared with sums in loops."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import Floats, PairwiseModel, grid_edges, random_grid, random_model
from tests.support.score_checks import check_scores, without_sites

import locpmap as lp
from locpmap.graphs import Graph, Grid
from locpmap.potentials import Potentials

H, W, L, N = 3, 4, 3, 2
EDGES = np.array([[0, 1], [2, 1], [3, 0], [1, 3], [4, 2], [4, 0]])
FINITE = np.random.default_rng(7).normal(size=(L, L))
HARD = np.where(np.eye(L)[::-1] > 0, -np.inf, FINITE)  # forbids three pairs, not symmetric


# every form on a grid: (argument, tables of the horizontal edges, tables of the vertical edges)

Form = tuple[Any, Floats, Floats]


def potts(weights: Any) -> Floats:
    return np.asarray(weights)[..., None, None] * np.eye(L)


def grid_forms(rng: np.random.Generator, images: tuple[int, ...]) -> dict[str, Form]:
    def normal(*shape: int) -> Floats:
        return rng.normal(size=(*shape,))

    right, down = (H, W - 1), (H - 1, W)
    w, v = normal(*images, *right), normal(*images, *down)
    w1, v1 = normal(*right), normal(*down)
    t, u = normal(*images, *right, L, L), normal(*images, *down, L, L)
    f, g, tables = normal(*images, *right, 2), normal(*images, *down, 2), normal(2, L, L)
    t_hard = np.where(rng.random(t.shape) < 0.2, -np.inf, t)
    return {
        "weight": (0.7, potts(0.7), potts(0.7)),
        "negative weight": (-2, potts(-2), potts(-2)),
        "weight in an array": (np.float32(0.5), potts(0.5), potts(0.5)),
        "weight per direction": ((0.7, -0.2), potts(0.7), potts(-0.2)),
        "weights in a list": ([1, 2], potts(1), potts(2)),
        "weights per edge": ((w, v), potts(w), potts(v)),
        "weights per edge, the same for all images": ((w1, v1), potts(w1), potts(v1)),
        "weights per edge, vertical the same for all images": ((w, v1), potts(w), potts(v1)),
        "weights per edge beside a weight": ((w, 0.3), potts(w), potts(0.3)),
        "table": (FINITE, FINITE, FINITE),
        "table in lists": (FINITE.tolist(), FINITE, FINITE),
        "table with forbidden pairs": (HARD, HARD, HARD),
        "table per direction": ((FINITE, FINITE.T), FINITE, FINITE.T),
        "table per direction with forbidden pairs": ((HARD, FINITE), HARD, FINITE),
        "tables per edge": ((t, u), t, u),
        "tables per edge with forbidden pairs": ((t_hard, u), t_hard, u),
        "factored": (lp.Factored((f, g), tables), f @ tables.reshape(2, -1), g @ tables.reshape(2, -1)),
        "factored in lists": (lp.Factored([w1[..., None], v1[..., None]], [FINITE]), w1[..., None, None] * FINITE,
                              v1[..., None, None] * FINITE),
    }  # fmt: skip


FORMS = list(grid_forms(np.random.default_rng(0), ()))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forms_on_a_grid(form: str, batched: bool) -> None:
    rng = np.random.default_rng(1)
    images = (N,) if batched else ()
    unary = rng.normal(size=(*images, H, W, L))
    pairwise, horizontal, vertical = grid_forms(rng, images)[form]
    n = N if batched else 1

    def expand(tables: Floats, height: int, width: int) -> Floats:
        square = tables.reshape(*tables.shape[:-1], L, L) if tables.shape[-1] == L * L else tables
        return np.broadcast_to(square, (n, height, width, L, L)).reshape(n, height * width, L, L)

    tables = np.concatenate([expand(horizontal, H, W - 1), expand(vertical, H - 1, W)], axis=1)
    pot = Potentials.grid(unary, pairwise)
    check_scores(pot, unary.reshape(n, H * W, L), grid_edges(H, W), tables)
    assert pot.pairwise.potts == ("weight" in form)


@pytest.mark.parametrize("kind", ["weight", "weights", "tables", "per direction", "factored"])
def test_forms_with_eight_neighbours(kind: str) -> None:
    rng = np.random.default_rng(2)
    grid = Grid(H, W, 8)
    weights = [rng.normal(size=shape) for shape in grid.direction_shapes]
    tables = [rng.normal(size=(*shape, L, L)) for shape in grid.direction_shapes]
    features = [rng.normal(size=(*shape, 1)) for shape in grid.direction_shapes]
    pairwise, expected = {
        "weight": (0.3, [np.tile(potts(0.3), (h, w, 1, 1)) for h, w in grid.direction_shapes]),
        "weights": (tuple(weights), [potts(w) for w in weights]),
        "tables": (tuple(tables), tables),
        "per direction": ((1, 2, 3, 4), [potts(d + np.ones(s)) for d, s in enumerate(grid.direction_shapes)]),
        "factored": (lp.Factored(features, FINITE[None]), [f[..., None] * FINITE for f in features]),
    }[kind]
    unary = rng.normal(size=(H, W, L))
    flat = np.concatenate([t.reshape(-1, L, L) for t in expected])
    check_scores(Potentials.grid(unary, pairwise, connectivity=8), unary.reshape(1, -1, L), grid.edges(), flat[None])


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("form", ["weight", "weights", "shared weights", "table", "hard table", "tables", "factored"])
def test_forms_on_a_graph(form: str, batched: bool) -> None:
    rng = np.random.default_rng(3)
    n, images, n_edges = (N, (N,), len(EDGES)) if batched else (1, (), len(EDGES))
    weights, shared = rng.normal(size=(*images, n_edges)), rng.normal(size=n_edges)
    tables = rng.normal(size=(*images, n_edges, L, L))
    features, bases = rng.normal(size=(*images, n_edges, 2)), rng.normal(size=(2, L, L))
    pairwise, expected = {
        "weight": (1.5, potts(1.5)),
        "weights": (weights, potts(weights)),
        "shared weights": (shared.tolist(), potts(shared)),
        "table": (FINITE, FINITE),
        "hard table": (HARD, HARD),
        "tables": (tables, tables),
        "factored": (lp.Factored(features, bases), np.einsum("...f,fab->...ab", features, bases)),
    }[form]
    unary = rng.normal(size=(*images, 5, L))
    pot = Potentials.graph(unary, EDGES, pairwise)
    check_scores(pot, unary.reshape(n, 5, L), EDGES, np.broadcast_to(expected, (n, n_edges, L, L)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2)])
@pytest.mark.parametrize("connectivity", [4, 8])
def test_narrow_grids(shape: tuple[int, int], connectivity: int) -> None:
    rng = np.random.default_rng(4)
    grid = Grid(*shape, connectivity)
    weights = [rng.normal(size=s) for s in grid.direction_shapes]
    unary = rng.normal(size=(*shape, L))
    flat = np.concatenate([w.ravel() for w in weights])
    for pairwise, tables in (
        (tuple(weights), potts(flat)),
        (0.4, potts(0.4 + 0 * flat)),
        (FINITE, potts(0 * flat) + FINITE),
    ):
        pot = Potentials.grid(unary, pairwise, connectivity=connectivity)
        check_scores(pot, unary.reshape(1, -1, L), grid.edges(), tables[None])


def test_ambiguous_shapes() -> None:
    """Weights (H, W - 1) and a table (L, L) of the same shape are distinguished by the other direction, or rejected."""
    unary = np.zeros((L, L + 1, L))
    weights = (np.ones((L, L)), np.ones((L - 1, L + 1)))
    assert Potentials.grid(unary, weights).pairwise.potts
    assert not Potentials.grid(unary, (FINITE, FINITE)).pairwise.potts
    triangle = [[0, 1], [1, 2], [2, 0]]
    with pytest.raises(lp.InputError, match="could be one table or a weight per image and edge"):
        Potentials.graph(np.zeros((L, 3, L)), triangle, FINITE)
    table = np.broadcast_to(FINITE, (3, L, L))
    assert Potentials.graph(np.zeros((L, 3, L)), triangle, table).score(np.zeros((L, 3), int)).shape == (L,)


def test_local_scores_are_differences_of_scores() -> None:
    model = random_model("grid", n_sites=6, n_labels=3, seed=1)
    pot = Potentials.graph(*model)
    for seed in range(5):
        y = np.random.default_rng(seed).integers(3, size=6)
        local = pot.local_scores(y)
        for i, k in itertools.product(range(6), range(3)):
            changed = np.where(np.arange(6) == i, k, y)
            np.testing.assert_allclose(local[i, k] - local[i, y[i]], pot.score(changed) - pot.score(y), atol=1e-12)


@pytest.mark.parametrize("kind", ["random", "potts", "submodular"])
def test_scores_of_all_labellings_by_enumeration(kind: str) -> None:
    grid = random_grid(2, 3, 2, kind, forbidden=0.1, seed=3)
    exact = Enumeration(*grid.flatten())
    pot = Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    scores = [pot.score(y.reshape(2, 3)) for y in exact.labellings]
    np.testing.assert_allclose(scores, exact.scores, rtol=1e-12)
    batch = Potentials.grid(np.tile(grid.unary, (64, 1, 1, 1)), (grid.horizontal, grid.vertical))
    np.testing.assert_allclose(batch.score(exact.labellings.reshape(64, 2, 3)), exact.scores, rtol=1e-12)


# masks: an ignored site is removed from the graph


def mask_form(form: str, model: PairwiseModel) -> tuple[Any, Floats]:
    """Return the pairwise argument and the equivalent tables (E, L, L)."""
    features, bases = model.tables[:, :2, 0], np.stack([FINITE, FINITE.T])
    every = np.ones((len(model.edges), 1, 1))
    return {
        "weight": (0.8, every * potts(0.8)),
        "weights": (model.tables[:, 0, 0], potts(model.tables[:, 0, 0])),
        "table": (FINITE, every * FINITE),
        "hard table": (HARD, every * HARD),
        "tables": (model.tables, model.tables),
        "factored": (lp.Factored(features, bases), np.einsum("ef,fab->eab", features, bases)),
    }[form]


@pytest.mark.parametrize("images", [(), (2,)], ids=str)
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1)], ids=str)
def test_factored_where_a_direction_has_no_edges(shape: tuple[int, int], images: tuple[int, ...]) -> None:
    rng = np.random.default_rng(10)
    height, width = shape
    features = rng.normal(size=(*images, height, width - 1, 2)), rng.normal(size=(*images, height - 1, width, 2))
    bases = np.stack([FINITE, FINITE.T])
    tables = tuple(np.einsum("...f,fab->...ab", f, bases) for f in features)
    unary, y = rng.normal(size=(*images, *shape, L)), rng.integers(L, size=(*images, *shape))
    factored, expanded = (Potentials.grid(unary, term) for term in (lp.Factored(features, bases), tables))
    np.testing.assert_allclose(factored.score(y), expanded.score(y), rtol=1e-12)
    np.testing.assert_allclose(lp.infer(factored, "exact").probability, lp.infer(expanded, "exact").probability)


def test_factored_on_a_graph_without_edges() -> None:
    unary = np.random.default_rng(11).normal(size=(2, 3, L))
    pot = Potentials.graph(unary, [], lp.Factored(np.zeros((2, 0, 1)), FINITE[None]))
    np.testing.assert_allclose(pot.score(np.zeros((2, 3), int)), unary[..., 0].sum(axis=1))


@pytest.mark.parametrize("form", ["weight", "weights", "table", "hard table", "tables", "factored"])
@pytest.mark.parametrize("ignored", [[0], [2, 3], [1, 5, 6, 8], [0, 1, 2, 3, 5, 6, 7, 8]], ids=str)
def test_masking_a_site_equals_deleting_it(form: str, ignored: list[int]) -> None:
    model = random_model("grid", n_sites=9, n_labels=L, seed=8)
    mask = np.isin(np.arange(9), ignored)
    pairwise, tables = mask_form(form, model)
    masked = Potentials.graph(model.unary, model.edges, pairwise, mask=mask)
    small = Potentials.graph(*without_sites(PairwiseModel(model.unary, model.edges, tables), mask))
    for seed in range(3):
        y = np.random.default_rng(seed).integers(L, size=9)
        np.testing.assert_allclose(masked.score(y), small.score(y[~mask]), rtol=1e-12)
        np.testing.assert_allclose(masked.local_scores(y)[~mask], small.local_scores(y[~mask]), rtol=1e-12)
        marked = np.where(mask, -1, y)
        np.testing.assert_array_equal(masked.local_scores(marked), masked.local_scores(y))
        assert not np.isnan(masked.local_scores(y)).any()
        assert masked.score(marked) == masked.score(y)
        marked[~mask] = -1
        with pytest.raises(lp.InputError, match=f"labels contains -1 where no site is masked, expected 0 to {L - 1}"):
            masked.score(marked)


@pytest.mark.parametrize("pairwise", [0.8, FINITE, HARD, (HARD, FINITE)], ids=["weight", "table", "hard", "directions"])
def test_masks_of_a_batch(pairwise: Any) -> None:
    """With one mask for all images or one for each, scores equal those of single images."""
    rng = np.random.default_rng(9)
    unary, y = rng.normal(size=(N, H, W, L)), rng.integers(L, size=(N, H, W))
    for mask in (rng.random((H, W)) < 0.3, rng.random((N, H, W)) < 0.3):
        batch = Potentials.grid(unary, pairwise, mask=mask)
        masks = np.broadcast_to(mask, (N, H, W))
        alone = [Potentials.grid(unary[n], pairwise, mask=masks[n]) for n in range(N)]
        np.testing.assert_array_equal(batch.score(y), [pot.score(y[n]) for n, pot in enumerate(alone)])
        np.testing.assert_array_equal(batch.local_scores(y), [pot.local_scores(y[n]) for n, pot in enumerate(alone)])


def test_unaries_of_masked_sites_are_ignored() -> None:
    """Images without data at masked sites may have NaN there."""
    unary, mask = np.zeros((H, W, L)), np.zeros((H, W), bool)
    unary[1, 2], mask[1, 2] = np.nan, True
    assert Potentials.grid(unary, 1.0, mask=mask).score(np.zeros((H, W), int)) == 13  # 17 edges less 4


def test_empty_mask_has_no_effect() -> None:
    unary = np.random.default_rng(5).normal(size=(H, W, L))
    y = unary.argmax(axis=2)
    assert Potentials.grid(unary, 1.0, mask=np.zeros((H, W), bool)).score(y) == Potentials.grid(unary, 1.0).score(y)


# forbidden labels and pairs


def test_forbidden_labels_and_pairs_score_minus_infinity() -> None:
    unary = np.zeros((1, 3, 2))
    unary[0, 1, 0] = -np.inf
    pot = Potentials.grid(unary, np.array([[0.0, -np.inf], [0.5, 1.0]]))
    assert pot.score([[1, 1, 1]]) == 2.0
    assert pot.score([[1, 0, 1]]) == -np.inf
    assert pot.score([[0, 1, 1]]) == -np.inf
    np.testing.assert_array_equal(pot.local_scores([[0, 1, 0]]), [[[-np.inf, 1], [-np.inf, -np.inf], [0.5, 1]]])


# layout and precision of arrays


def layouts(array: np.ndarray) -> dict[str, Any]:
    padded = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    padded[..., ::2] = array
    read_only = array.copy()
    read_only.flags.writeable = False
    return {
        "Fortran order": np.asfortranarray(array),
        "negative strides": np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
        "every other": padded[..., ::2],
        "read-only": read_only,
        "lists": array.tolist(),
        "other byte order": array.astype(array.dtype.newbyteorder()),
        "transposed": np.ascontiguousarray(array.T).T,
    }


UNARY = np.random.default_rng(6).normal(size=(H, W, L))
RIGHT, DOWN = np.random.default_rng(7).normal(size=(H, W - 1)), np.random.default_rng(8).normal(size=(H - 1, W))


@pytest.mark.parametrize("layout", layouts(UNARY))
def test_array_layout_has_no_effect(layout: str) -> None:
    weights = tuple(np.asarray(layouts(w)[layout]) for w in (RIGHT, DOWN))
    pot, plain = Potentials.grid(layouts(UNARY)[layout], weights), Potentials.grid(UNARY, (RIGHT, DOWN))
    y = np.random.default_rng(9).integers(L, size=(H, W))
    assert pot.score(layouts(y)[layout]) == plain.score(y)
    np.testing.assert_array_equal(pot.local_scores(y), plain.local_scores(y))
    for found, expected in zip(pot.model, plain.model, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        assert np.asarray(found).flags.c_contiguous


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [(np.float64, np.float64), (np.float32, np.float32), (np.float16, np.float32), (np.int8, np.float64),
     (np.uint16, np.float64), (np.int64, np.float64), (bool, np.float64), (np.longdouble, np.float64)],
)  # fmt: skip
def test_precision(dtype: Any, stored: Any) -> None:
    """Single and double precision are preserved, half becomes single, everything else double."""
    whole = np.random.default_rng(10).integers(0, 2, size=(H, W, L))
    pot = Potentials.grid(whole.astype(dtype), 2)
    assert pot.unary.dtype == stored
    y = np.zeros((H, W), np.uint8)
    assert pot.score(y) == Potentials.grid(whole.astype(float), 2).score(y)


def test_potentials_are_immutable() -> None:
    pot = Potentials.grid(UNARY, (RIGHT, DOWN))
    with pytest.raises(dataclasses.FrozenInstanceError):
        pot.unary = UNARY  # type: ignore[misc]
    arrays = [pot.unary, *(pot.pairwise.weights or ()), *(a for a in pot.model if isinstance(a, np.ndarray))]
    assert not any(array.flags.writeable for array in arrays)
    assert UNARY.flags.writeable  # the caller's array stays writeable


def test_graph_may_replace_the_edges() -> None:
    graph = Graph(5, EDGES)
    unary = np.random.default_rng(11).normal(size=(5, L))
    assert Potentials.graph(unary, graph, 1.0).score([0] * 5) == Potentials.graph(unary, EDGES, 1.0).score([0] * 5)


def test_tensor_input_gives_tensor_output() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    unary = torch.from_numpy(UNARY.copy()).requires_grad_()
    weights = (torch.from_numpy(RIGHT), torch.from_numpy(DOWN))
    y = torch.zeros(H, W, dtype=torch.int64)
    pot, plain = Potentials.grid(unary, weights), Potentials.grid(UNARY, (RIGHT, DOWN))
    assert pot.score(y) == plain.score(y.numpy())
    assert isinstance(pot.local_scores(y), torch.Tensor)
    np.testing.assert_array_equal(pot.local_scores(y).numpy(), plain.local_scores(y.numpy()))
    batch = Potentials.grid(unary[None], weights)
    assert isinstance(batch.score(y[None]), torch.Tensor)
    half = Potentials.grid(unary.detach().to(torch.bfloat16), 1.0)
    assert half.unary.dtype == np.float32
    with pytest.raises(lp.errors.InputTypeError, match="unary has dtype"):
        Potentials.grid(unary.detach() * 1j, 1.0)


def test_tensors_that_numpy_cannot_read_are_converted() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    unary = torch.from_numpy(UNARY)
    for view in (torch._neg_view(-unary), (unary * 1j).conj().imag * -1):
        np.testing.assert_array_equal(Potentials.grid(view, 1.0).unary.reshape(UNARY.shape), UNARY)
    coarse = unary.to(torch.float8_e5m2)
    np.testing.assert_array_equal(Potentials.grid(coarse, 1.0).unary.reshape(UNARY.shape), coarse.float().numpy())
