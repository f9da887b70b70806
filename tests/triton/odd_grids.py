"""Models with forbidden labels for updates of single sites: windows of grids, and graphs of uneven degree."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.oracles.models import random_unary, structure_edges

from locpmap import Factored
from locpmap.potentials import Potentials

Array = Any
FORMS = ["weight", "weights", "table", "hard tables", "factored"]
GRAPHS = [("full", "tables"), ("star", "factored"), ("tree", "weights"), ("cycle", "factored")]


def odd_grid(shape: tuple[int, int], n_labels: int, form: str, dtype: Any = np.float64) -> Potentials:
    """Return two images on a window of a grid, with forbidden labels and terms per edge (and per image along rows)."""
    rng = np.random.default_rng(n_labels)
    height, width = shape
    unary = random_unary((2, *shape), n_labels, 0.2, rng).astype(dtype)
    steps = [(2, height, width - 1), (height - 1, width)]
    tables = [rng.normal(size=(*step, n_labels, n_labels)) for step in steps]
    pairwise: Any = {
        "weight": 0.9,
        "weights": [rng.normal(size=step) for step in steps],
        "table": rng.normal(size=(n_labels, n_labels)),
        "hard tables": [np.where(rng.random(t.shape) < 0.15, -np.inf, t) for t in tables],
        "factored": Factored([rng.random((*s, 2)) for s in steps], rng.normal(size=(2, n_labels, n_labels))),
    }[form]
    return Potentials.grid(unary, pairwise, window=(3, 2, 17))


def odd_graph(structure: str, n_labels: int, form: str) -> Potentials:
    """Return two images on a graph of 13 sites (5 if full), with edges in random orientation."""
    rng = np.random.default_rng(n_labels)
    n_sites = 5 if structure == "full" else 13
    edges = structure_edges(structure, n_sites, rng)
    edges = np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1])
    pairwise: Any = {
        "weights": rng.normal(size=len(edges)),
        "tables": rng.normal(size=(len(edges), n_labels, n_labels)),
        "factored": Factored(rng.random((2, len(edges), 3)), rng.normal(size=(3, n_labels, n_labels))),
    }[form]
    return Potentials.graph(random_unary((2, n_sites), n_labels, 0.2, rng), edges, pairwise)


def random_beliefs(potentials: Potentials, dtype: Any = np.float64) -> Array:
    """Return random beliefs in the allowed labels, (N, S, L)."""
    unary = potentials.model.unary
    weights = np.random.default_rng(2).random(unary.shape) * (unary > -np.inf)
    return (weights / weights.sum(axis=2, keepdims=True)).astype(dtype)
