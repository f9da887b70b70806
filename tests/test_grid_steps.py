"""Grids with steps, which also join pixels that are not adjacent: edges, decoding and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.graphs import Grid

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
nn = pytest.importorskip("locpmap.nn")
make_field = pytest.importorskip("locpmap.nn.potentials").make_field

STEPS = ((0, 1), (1, 0), (0, 3), (3, 0), (2, -1))


def pairs_by_loop(height: int, width: int, step: tuple[int, int]) -> list[list[int]]:
    down, right = step
    return [
        [r * width + c, (r + down) * width + c + right]
        for r in range(height)
        for c in range(width)
        if r + down < height and 0 <= c + right < width
    ]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 7), (5, 1), (4, 6), (7, 5)])
def test_edges_and_shapes(height: int, width: int) -> None:
    grid = Grid(height, width, STEPS)
    by_loop = [pairs_by_loop(height, width, step) for step in STEPS]
    assert grid.edges().tolist() == [pair for pairs in by_loop for pair in pairs]
    assert [int(np.prod(shape)) for shape in grid.direction_shapes] == [len(pairs) for pairs in by_loop]
    colours = grid.colours()
    ends = grid.edges()
    assert (colours[ends[:, 0]] != colours[ends[:, 1]]).all()
    assert len(np.unique(colours)) <= 2


def test_unit_steps_equal_four_connectivity() -> None:
    assert Grid(3, 4, ((0, 1), (1, 0))) == Grid(3, 4)


@pytest.mark.parametrize(
    "steps",
    [(), ((0, 0),), ((0, 2),), ((1, 1),), ((0, -1),), ((-1, 0),), ((0, 1), (0, 1)), ((0, 1.0),), ((0, 1, 2),), (1,)],
    ids=str,
)
def test_bad_steps_raise_errors(steps: tuple) -> None:
    with pytest.raises(InputError, match="rows down, columns right"):
        Grid(4, 4, steps)
    with pytest.raises(InputError, match="steps is"):
        nn.PseudolikelihoodLoss(steps=steps)


def model(n_labels: int = 3, height: int = 4, width: int = 5) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(7)
    shapes = Grid(height, width, STEPS).direction_shapes
    return rng.normal(size=(height, width, n_labels)), [rng.normal(size=(*s, n_labels, n_labels)) for s in shapes]


def test_grid_with_steps_equals_its_graph() -> None:
    unary, tables = model()
    grid = lp.Potentials.grid(unary, tuple(tables), connectivity=STEPS)
    flat = np.concatenate([table.reshape(-1, 3, 3) for table in tables])
    graph = lp.Potentials.graph(unary.reshape(-1, 3), Grid(4, 5, STEPS).edges(), flat)
    labels = np.random.default_rng(0).integers(3, size=(4, 5))
    assert grid.score(labels) == pytest.approx(graph.score(labels.ravel()), abs=1e-12)
    np.testing.assert_allclose(grid.local_scores(labels).reshape(-1, 3), graph.local_scores(labels.ravel()), atol=1e-12)
    marginals = lp.infer(grid, "exact").probability.reshape(-1, 3)
    np.testing.assert_allclose(marginals, lp.infer(graph, "exact").probability, atol=1e-9)


@pytest.mark.parametrize("method", ["icm", "locpmap", "gibbs", "lbp", "trw", "mean_field", "max_product", "annealing"])
def test_decoders_support_steps_on_both_backends(method: str) -> None:
    unary, tables = model()
    weights = tuple(table[..., 0, 0] for table in tables)
    pot = lp.Potentials.grid(unary, weights, connectivity=STEPS)
    numba, reference = (lp.infer(pot, method, seed=3, backend=backend) for backend in ("numba", "reference"))
    np.testing.assert_array_equal(numba.labels, reference.labels)


@pytest.mark.parametrize("blocks", ["rows", "columns", "rows+columns", (2, 2)])
def test_lines_and_tiles_raise_errors(blocks: object) -> None:
    pot = lp.Potentials.grid(np.zeros((4, 5, 2)), 1.0, connectivity=STEPS)
    with pytest.raises(InputError, match="give a list of site lists"):
        lp.infer(pot, "locpmap", blocks=blocks)


def test_listed_blocks_are_accepted() -> None:
    pot = lp.Potentials.grid(model(2)[0][..., :2], 0.3, connectivity=STEPS)
    assert lp.infer(pot, "locpmap", blocks=[[0, 1, 5], [2, 7]], seed=0).labels.shape == (4, 5)


# losses


def tensors(dtype: Any = torch.float64) -> tuple[Any, list[Any], Any]:
    rng = np.random.default_rng(1)
    shapes = Grid(4, 5, STEPS).direction_shapes
    logits = torch.tensor(rng.normal(size=(2, 3, 4, 5)), dtype=dtype)
    terms = [torch.tensor(rng.normal(size=(2, *shape, 3, 3)), dtype=dtype) for shape in shapes]
    return logits, terms, torch.tensor(rng.integers(3, size=(2, 4, 5)))


def test_pseudolikelihood_matches_the_local_scores() -> None:
    logits, terms, labels = tensors()
    loss = nn.PseudolikelihoodLoss(reduction="none", steps=STEPS)(logits, terms, labels)
    pot = lp.Potentials.grid(logits.movedim(1, -1).numpy(), tuple(t.numpy() for t in terms), connectivity=STEPS)
    scores = torch.tensor(pot.local_scores(labels.numpy()))
    expected = F.cross_entropy(scores.flatten(0, 2), labels.flatten(), reduction="none").reshape(labels.shape)
    torch.testing.assert_close(loss, expected)


def test_samples_are_local_maxima_along_every_step() -> None:
    """Under very strong coupling, sites joined by steps of three get equal labels; other sites may differ."""
    logits, labels = torch.zeros(1, 2, 1, 9), torch.zeros(1, 1, 9, dtype=torch.int64)
    field = make_field(logits, [1000.0], labels, -100, ((0, 3),))
    samples = nn.ConsistentLoss(200, 20, steps=((0, 3),))._draw(field)[:, 0, 0]
    threes = samples.reshape(200, 3, 3)
    assert (threes == threes[:, :1]).all()
    assert (samples[:, 0] != samples[:, 1]).any()


def test_step_beyond_the_image_has_no_edges() -> None:
    logits, labels = torch.randn(1, 2, 2, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 2, 3).long()
    loss = nn.PseudolikelihoodLoss(steps=((0, 5), (7, 0)))(logits, [3.0, 3.0], labels)
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))


def test_head_predicts_a_term_for_every_step() -> None:
    generator = torch.Generator().manual_seed(0)
    head = nn.CRFHead(2, feature_channels=3, steps=STEPS)
    torch.nn.init.normal_(head.predict.weight, generator=generator)
    logits, maps = torch.randn(2, 2, 4, 5, generator=generator), torch.randn(2, 3, 4, 5, generator=generator)
    terms = head.terms(logits, feature_map=maps)
    assert [tuple(term.shape[1:]) for term in terms] == list(Grid(4, 5, STEPS).direction_shapes)
    kernel = head.predict.weight[:, :, 0, 0]
    torch.testing.assert_close(terms[4][1, 0, 2], kernel[4] @ maps[1, :, 0, 3])  # from (0, 3) down two and left one
    decoded = head.eval()(logits, feature_map=maps)
    pot = lp.Potentials.grid(logits.movedim(1, -1), tuple(term.detach() for term in terms), connectivity=STEPS)
    torch.testing.assert_close(decoded.probability, lp.infer(pot, "locpmap", probability="conditional").probability)


def test_head_and_loss_need_equal_steps() -> None:
    with pytest.raises(InputError, match="like the head"):
        nn.CRFHead(2, steps=STEPS, objective=nn.ConsistentLoss())
    with pytest.raises(InputError, match="nearest neighbours"):
        nn.CRFHead(2, steps=STEPS, objective="composite")
