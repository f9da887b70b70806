"""Random likelihoods of sites and blocks on odd structures, evaluated by any backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen
from locpmap.graphs import Graph, Grid
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.likelihood import Losses, Scores

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """The settings of random observations, labels and parameters on a structure; ``blocks`` is None for sites."""

    structure: Grid | Graph
    n_labels: int
    blocks: Any = None
    n_samples: int = 1
    n_unary: int = 1
    n_pairwise: int = 2
    void: float = 0.0
    weighted: bool = False
    shared: str = ""  # "images" and "edges": axes of the pairwise features that have length 1
    dtype: Any = np.float64
    scale: float = 1.0
    n_images: int = 2


def random_graph(n_sites: int, n_edges: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(n_sites, 1), axis=1)
    pairs = rng.permutation(pairs)[:n_edges]
    return Graph(n_sites, np.where(rng.random((n_edges, 1)) < 0.5, pairs, pairs[:, ::-1]))


TREE = Graph(9, [[0, 1], [2, 1], [1, 3], [3, 4], [5, 3], [6, 7], [8, 6], [7, 2]])
SITES = {
    "1x1": Case(Grid(1, 1), 2),
    "1xn": Case(Grid(1, 7), 3, n_unary=2),
    "3x5": Case(Grid(3, 5), 2, void=0.2),
    "three features": Case(Grid(3, 4), 2, n_pairwise=3, weighted=True),
    "no pairwise features": Case(Grid(2, 3), 2, n_pairwise=0),
    "no unary features": Case(Grid(3, 3), 3, n_unary=0),
    "one for all": Case(Grid(3, 4), 2, shared="images edges", void=0.1),
    "one for all images": Case(Grid(3, 4), 3, shared="images"),
    "eight": Case(Grid(4, 3, 8), 3, void=0.2, weighted=True),
    "graph": Case(random_graph(8, 14, 1), 5, weighted=True, n_unary=3),
    "two labels on a graph": Case(random_graph(8, 14, 1), 2, weighted=True, void=0.2),
    "no edges": Case(Graph(4, np.zeros((0, 2), int)), 3),
    "samples": Case(Grid(3, 5), 2, n_samples=3, void=0.2, weighted=True),
    "samples, five labels": Case(random_graph(7, 12, 2), 5, n_samples=3, void=0.2),
}
BLOCKS = {
    "1x1": Case(Grid(1, 1), 2, "rows"),
    "1xn": Case(Grid(1, 7), 3, "rows", n_unary=2),
    "nx1": Case(Grid(6, 1), 2, "rows"),
    "rows": Case(Grid(3, 5), 2, "rows", void=0.2, weighted=True),
    "columns": Case(Grid(4, 3), 5, "columns", n_pairwise=1, shared="edges"),
    "both": Case(Grid(4, 5), 3, "rows+columns", void=0.2, weighted=True),
    "both, two labels": Case(Grid(4, 5), 2, "rows+columns", weighted=True, shared="images edges"),
    "eight": Case(Grid(3, 4, 8), 2, "rows+columns", void=0.1),
    "tiles": Case(Grid(3, 5), 3, (2, 2), void=0.2, weighted=True),
    "eight tiles": Case(Grid(3, 4, 8), 2, (2, 3), void=0.1),
    "trees": Case(TREE, 5, [[0, 1, 2, 3, 4, 5], [6, 7]], void=0.2, weighted=True),
    "two trees in a block": Case(TREE, 5, [[0, 1, 2, 3, 5, 6, 8]]),
    "listed": Case(random_graph(8, 14, 1), 2, [[0, 3, 4], [1, 6]], void=0.1),
    "no edges": Case(Graph(3, np.zeros((0, 2), int)), 3, [[0, 1, 2]]),
    "all": Case(Grid(3, 3), 2, [list(range(9))], weighted=True),
}


@dataclass(frozen=True)
class Problem:
    """The random arrays of a case: features, and the parameters that map them to scores."""

    case: Case
    unary: Array  # (N, S, D)
    features: Array  # (1|N, 1|E, F)
    group: Array
    labels: Array
    samples: Array
    importance: Array
    weights: Array  # (D + 1, L), with the bias in the last row
    tables: Array  # (G, F, L, L)

    @property
    def n_windows(self) -> int:
        """Number of sites or of blocks."""
        return self.labels.shape[1] if self.case.blocks is None else len(self.plan.joint)

    @cached_property
    def plan(self) -> Any:
        return plan_blocks(self.case.blocks, self.case.structure, self.case.n_labels)

    @property
    def edges(self) -> Array:
        return self.case.structure.edges()

    def scores(self, weights: Array, tables: Array) -> Scores:
        """Return the scores of the log-linear model."""
        near = self.case.structure.adjacency()
        unary = self.unary.astype(float) @ weights[:-1] + weights[-1]
        lists = (near.indptr, near.neighbour, near.edge, near.end)
        arrays = (unary.astype(self.case.dtype), self.features, tables[None].astype(self.case.dtype))
        return Scores(*arrays, False, False, self.group, self.edges, *lists)

    def losses(self, backend: Any, scores: Scores, place: Callable[[Any], Any] = lambda array: array) -> Losses:
        """Compute losses and their derivatives by the kernels of a backend."""
        kernels = CpuKernels(backend) if isinstance(backend, str) else backend
        labels, samples, importance = (place(array) for array in (self.labels, self.samples, self.importance))
        scores = Scores(*(part if isinstance(part, bool) else place(part) for part in scores))
        if self.case.blocks is not None:
            return kernels.block_losses(scores, self.plan, labels, importance)
        found = kernels.site_losses(scores, labels, samples, importance)
        return found._replace(gradient=kernels.pair_gradient(scores, samples, found.residual))

    def evaluate(
        self, backend: Any, weights: Array, tables: Array, place: Callable[[Any], Any] = lambda array: array
    ) -> tuple[float, Array, Array]:
        """Return the value and its gradients with respect to weights and tables."""
        found = self.losses(backend, self.scores(weights, tables), place)
        value, residual, gradient = (np.asarray(part.cpu() if hasattr(part, "cpu") else part) for part in found)
        by_unary = residual.sum(axis=2, dtype=float).reshape(-1, residual.shape[3])
        rows = np.concatenate([self.unary, np.ones((*self.unary.shape[:2], 1))], axis=2)
        return float(value.sum(dtype=float)), rows.reshape(len(by_unary), -1).T @ by_unary, gradient.sum(axis=0)


def draw(case: Case, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    structure, n, n_sites = case.structure, case.n_images, case.structure.n_sites
    edges = structure.edges()
    directions = [h * w for h, w in structure.direction_shapes] if isinstance(structure, Grid) else [len(edges)]
    unary = rng.normal(size=(n, n_sites, case.n_unary)).astype(case.dtype)
    n_rows = 1 if "images" in case.shared else n
    n_columns = 1 if "edges" in case.shared else len(edges)
    features = rng.normal(size=(n_rows, n_columns, case.n_pairwise)).astype(case.dtype)
    group = np.repeat(np.arange(len(directions), dtype=np.int32), directions)
    labels = rng.integers(case.n_labels, size=(n, n_sites)).astype(np.int16)
    labels[rng.random(labels.shape) < case.void] = -1
    samples = labels[:, :, None]
    if case.n_samples > 1:
        samples = rng.integers(-1 if case.void else 0, case.n_labels, (n, n_sites, case.n_samples)).astype(np.int16)
    shape = (n, n_sites) if case.blocks is None else (n,)
    importance = rng.uniform(0.5, 2, shape if case.weighted else (1,) * len(shape))
    weights = case.scale * rng.normal(size=(case.n_unary + 1, case.n_labels))
    tables = case.scale * rng.normal(size=(len(directions), case.n_pairwise, case.n_labels, case.n_labels))
    return Problem(case, unary, frozen(features), group, labels, samples, importance, weights, tables)


def check_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Compare arrays with a tolerance relative to the largest entry, since sums of either sign cancel."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max(initial=1.0))


def forms(problem: Problem) -> dict[str, Scores]:
    """Return the other forms of pairwise scores: tables or Potts weights, per edge or shared, per image or shared."""
    scores, rng, n_labels = problem.scores(problem.weights, problem.tables), np.random.default_rng(3), 3
    n_images, n_edges = len(problem.labels), len(problem.edges)
    per_edge = scores._replace(group=np.arange(n_edges, dtype=np.int32), features=np.ones((1, 1, 1)), own_tables=True)
    none = np.empty((0, 0, 0, n_labels, n_labels))
    potts = scores._replace(potts=True, tables=none)
    return {
        "a table per edge and image": per_edge._replace(tables=rng.normal(size=(n_images, n_edges, 1, 3, 3))),
        "a table per edge": per_edge._replace(tables=rng.normal(size=(1, n_edges, 1, 3, 3))),
        "a weight per edge and image": potts._replace(features=rng.normal(size=(n_images, n_edges, 1))),
        "a weight per edge": potts._replace(features=rng.normal(size=(1, n_edges, 1))),
        "a weight for all": potts._replace(features=rng.normal(size=(1, 1, 1))),
    }


def check_forbidden(case: Case, backend: Any, place: Callable[[Any], Any] = lambda array: array) -> None:
    """Forbid the true label of a site: an infinite loss, equal shares, and other sites as if it had a low score."""
    problem = draw(case)
    scores, (n, i) = problem.scores(problem.weights, problem.tables), np.argwhere(problem.labels >= 0)[0]
    true, n_samples = problem.labels[n, i], problem.samples.shape[2]
    found = []
    for score in (-np.inf, -1e4):
        scores.unary[n, i, true] = score
        losses = problem.losses(backend, scores, place)[:2]
        found.append([np.asarray(part.cpu() if hasattr(part, "cpu") else part) for part in losses])
    (value, residual), (expected_value, expected_residual) = found
    assert value[n, i] == np.inf
    weight = np.broadcast_to(problem.importance, value.shape)[n, i]
    np.testing.assert_allclose(residual[n, i, :, true], -weight / n_samples, rtol=1e-12)
    np.testing.assert_allclose(residual[n, i].sum(axis=1), 0, atol=1e-12)
    if n_samples > 1:
        expected_residual[n, i] = residual[n, i]
    value[n, i] = expected_value[n, i]
    check_same((value, residual), (expected_value, expected_residual))


FORMS = (
    "a table per edge and image",
    "a table per edge",
    "a weight per edge and image",
    "a weight per edge",
    "a weight for all",
)
FORMED = {
    "sites": Case(Grid(3, 4), 3, n_samples=3, void=0.2, weighted=True),
    "one sample": Case(Grid(3, 4), 3, void=0.2),
    "rows and columns": Case(Grid(3, 4), 3, "rows+columns", void=0.2, weighted=True),
    "tiles": Case(Grid(3, 4), 3, (2, 2), void=0.2),
}


def compare_forms(
    problem: Problem, scores: Scores, backend: Any, place: Callable[[Any], Any] = lambda array: array
) -> Losses:
    """Compare the losses of a backend with the reference, and return the latter."""
    expected = problem.losses("reference", scores)
    found = problem.losses(backend, scores, place)
    check_same(tuple(np.asarray(part.cpu() if hasattr(part, "cpu") else part) for part in found), expected)
    return expected
