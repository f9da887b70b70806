"""Random pairwise models as plain arrays: a structure (grid, tree, ...) times a kind of table (Potts, ...)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STRUCTURES = ("grid", "full", "star", "tree", "chain", "cycle")
KINDS = ("random", "potts", "attractive", "submodular")


class PairwiseModel(NamedTuple):
    """``score(y) = Σ_i unary[i, y_i] + Σ_e tables[e, y_i, y_j]`` with ``(i, j) = edges[e]``."""

    unary: Floats  # (S, L)
    edges: Ints  # (E, 2)
    tables: Floats  # (E, L, L)


class GridModel(NamedTuple):
    """A 4-connected grid; tables are indexed [left, right] and [upper, lower]."""

    unary: Floats  # (H, W, L)
    horizontal: Floats  # (H, W - 1, L, L)
    vertical: Floats  # (H - 1, W, L, L)

    def flatten(self) -> PairwiseModel:
        """Return the same model with sites numbered row by row and horizontal edges first."""
        height, width, n_labels = self.unary.shape
        tables = np.concatenate([t.reshape(-1, n_labels, n_labels) for t in (self.horizontal, self.vertical)])
        return PairwiseModel(self.unary.reshape(-1, n_labels), grid_edges(height, width), tables)


def grid_edges(height: int, width: int) -> Ints:
    """Return horizontal edges, then vertical ones, each row by row, (E, 2)."""
    site = np.arange(height * width).reshape(height, width)
    horizontal = np.stack([site[:, :-1].ravel(), site[:, 1:].ravel()], axis=1)
    vertical = np.stack([site[:-1].ravel(), site[1:].ravel()], axis=1)
    return np.concatenate([horizontal, vertical])


def structure_edges(structure: str, n_sites: int, rng: np.random.Generator) -> Ints:
    """Return the edges of one of STRUCTURES; a grid is as square as the divisors of n_sites allow."""
    sites = np.arange(n_sites)
    if structure == "grid":
        height = max(h for h in range(1, int(n_sites**0.5) + 1) if n_sites % h == 0)
        return grid_edges(height, n_sites // height)
    if structure == "full":
        return np.stack(np.triu_indices(n_sites, 1), axis=1)
    if structure == "star":
        return np.stack([np.zeros_like(sites[1:]), sites[1:]], axis=1)
    if structure == "tree":
        parents = rng.integers(0, sites[1:], dtype=np.int64)
        return np.stack([parents, sites[1:]], axis=1)
    chain = np.stack([sites[:-1], sites[1:]], axis=1)
    if structure == "chain":
        return chain
    if structure == "cycle":
        return np.concatenate([chain, [[n_sites - 1, 0]]])
    raise ValueError(f"structure is {structure!r}; expected one of {STRUCTURES}")


def random_tables(
    kind: str, shape: tuple[int, ...], n_labels: int, coupling: float, rng: np.random.Generator
) -> Floats:
    """Draw pairwise tables, (*shape, L, L).

    random: independent normal entries.  potts: a weight of either sign where the labels agree.
    attractive: the same with weights >= 0.  submodular: ``row[a] + column[b] - weight (a - b)²``, not symmetric,
    so that ``t[a, b] + t[a+1, b+1] >= t[a, b+1] + t[a+1, b]``; for two labels this defines attraction.
    """
    weight = coupling * rng.normal(size=shape)[..., None, None]
    labels = np.arange(n_labels, dtype=np.float64)
    if kind == "random":
        return coupling * rng.normal(size=(*shape, n_labels, n_labels))
    if kind == "potts":
        return weight * np.eye(n_labels)
    if kind == "attractive":
        return np.abs(weight) * np.eye(n_labels)
    if kind == "submodular":
        row, column = rng.normal(size=(*shape, n_labels, 1)), rng.normal(size=(*shape, 1, n_labels))
        return coupling * (row + column) - np.abs(weight) * np.square(labels[:, None] - labels)
    raise ValueError(f"kind is {kind!r}; expected one of {KINDS}")


def random_unary(shape: tuple[int, ...], n_labels: int, forbidden: float, rng: np.random.Generator) -> Floats:
    """Draw normal unaries, (*shape, L).  Labels are −inf with probability `forbidden`, but never all of a site."""
    unary = rng.normal(size=(*shape, n_labels))
    ban = rng.random(unary.shape) < forbidden
    ban &= np.arange(n_labels) != rng.integers(n_labels, size=shape)[..., None]
    return np.where(ban, -np.inf, unary)


def random_grid(
    height: int,
    width: int,
    n_labels: int = 2,
    kind: str = "random",
    *,
    coupling: float = 0.8,
    forbidden: float = 0.0,
    seed: int = 0,
) -> GridModel:
    """Draw a random grid model."""
    rng = np.random.default_rng(seed)
    return GridModel(
        random_unary((height, width), n_labels, forbidden, rng),
        random_tables(kind, (height, width - 1), n_labels, coupling, rng),
        random_tables(kind, (height - 1, width), n_labels, coupling, rng),
    )


def random_model(
    structure: str,
    kind: str = "random",
    n_sites: int = 6,
    n_labels: int = 2,
    *,
    coupling: float = 0.8,
    forbidden: float = 0.0,
    seed: int = 0,
) -> PairwiseModel:
    """Draw a random model of one of STRUCTURES with tables of one of KINDS."""
    rng = np.random.default_rng(seed)
    edges = structure_edges(structure, n_sites, rng)
    unary = random_unary((n_sites,), n_labels, forbidden, rng)
    return PairwiseModel(unary, edges, random_tables(kind, (len(edges),), n_labels, coupling, rng))
