"""Small models of every kind: odd shapes, all forms of the pairwise term, forbidden and extreme scores."""

from __future__ import annotations

import numpy as np

from locpmap.pairwise import Factored
from locpmap.potentials import Potentials

RNG = np.random.default_rng(0)
FORBIDDEN = -np.inf


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Draw normal numbers from the generator of this module."""
    return scale * RNG.normal(size=shape)


def forbid(values: np.ndarray, fraction: float) -> np.ndarray:
    """Set the given fraction of entries to -inf, but never the first label (or pair)."""
    ban = RNG.random(values.shape) < fraction
    ban[..., 0] = False
    return np.where(ban, FORBIDDEN, values)


GRAPH = np.array([[0, 1], [4, 1], [4, 0], [2, 4], [6, 5], [5, 2], [2, 1]])  # cycles; sites 3 and 7 are isolated
RING = np.array([[0, 1], [2, 1], [3, 2], [0, 3]])

ODD = {
    "1x1": Potentials.grid(normal(1, 1, 3), 0.7),
    "1xn": Potentials.grid(normal(1, 7, 2), (normal(1, 6), np.zeros((0, 7)))),
    "nx1": Potentials.grid(normal(5, 1, 5), 0.7),
    "primes": Potentials.grid(normal(3, 5, 3), (normal(3, 4), normal(2, 5))),
    "eight neighbours": Potentials.grid(normal(4, 3, 2), (0.3, 0.5, -0.4, 0.2), connectivity=8),
    "batch": Potentials.grid(normal(3, 2, 3, 3), (normal(3, 2, 2), normal(3, 1, 3))),
    "table": Potentials.grid(normal(3, 2, 3), normal(3, 3)),
    "direction tables": Potentials.grid(normal(2, 3, 3), (normal(3, 3), normal(3, 3))),
    "table per edge and image": Potentials.graph(normal(2, 8, 3), GRAPH, normal(2, 7, 3, 3)),
    "factored": Potentials.graph(normal(2, 8, 2), GRAPH, Factored(normal(2, 7, 3), normal(3, 2, 2))),
    "no edges": Potentials.graph(normal(4, 3), [], 1.0),
    "one label": Potentials.graph(normal(8, 1), GRAPH, normal(7)),
    "forbidden labels": Potentials.graph(forbid(normal(8, 5), 0.4), GRAPH, normal(7)),
    "forbidden pairs": Potentials.graph(forbid(normal(8, 3), 0.2), GRAPH, forbid(normal(7, 3, 3), 0.3)),
    "nothing allowed": Potentials.graph(normal(4, 2), RING, np.array([[FORBIDDEN, FORBIDDEN], [FORBIDDEN, FORBIDDEN]])),
    "far apart": Potentials.graph(normal(8, 3, scale=1e4), GRAPH, normal(7, scale=1e6)),
    "far apart, tables": Potentials.graph(normal(8, 3, scale=1e4), GRAPH, normal(7, 3, 3, scale=1e6)),
}
