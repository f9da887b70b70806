"""Scores of a log-linear model at one site and one edge, and their derivatives by the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.kernels.observations import Observations

Array = npt.NDArray[Any]


def site_features(data: Observations, n: int, i: int) -> Array:
    """The unary features of a site and a 1 for the bias, (D + 1,)."""
    return np.append(data.unary[n, i].astype(np.float64), 1.0)


def edge_features(data: Observations, n: int, slot: int) -> Array:
    """The pairwise features of the edge at a slot of the neighbour lists, (F,)."""
    features = data.pairwise[n if len(data.pairwise) > 1 else 0]
    return features[data.edge[slot] if len(features) > 1 else 0].astype(np.float64)


def pair_table(data: Observations, tables: Array, n: int, slot: int) -> Array:
    """The scores on the edge at a slot, (L, L): the label here, at the slot's site, then the neighbour's."""
    table = np.einsum("f,fab->ab", edge_features(data, n, slot), tables[data.group[data.edge[slot]]])
    return table if data.end[slot] == 0 else table.T


def add_site_slope(data: Observations, n: int, i: int, residual: Array, slope: Array) -> None:
    """Add to ``slope`` (D + 1, L) what a derivative by the site's scores, (L,), means for the weights."""
    slope += np.outer(site_features(data, n, i), residual)


def add_pair_slope(data: Observations, n: int, slot: int, residual: Array, table_slope: Array) -> None:
    """Add to ``table_slope`` (G, F, L, L) what a derivative by the :func:`pair_table`, (L, L), means for the tables."""
    residual = residual if data.end[slot] == 0 else residual.T
    table_slope[data.group[data.edge[slot]]] += np.multiply.outer(edge_features(data, n, slot), residual)
