"""Potentials of a log-linear model from its features and weights."""

from dataclasses import replace
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.features import Features
from locpmap.graphs import Box, Graph, Grid, Volume
from locpmap.pairwise import Factored
from locpmap.potentials import Potentials


def compose(
    features: Features, weights: Array, tables: Array, *, potts: bool, scale: float = 1.0, mask: Any = None
) -> Potentials:
    """Return the potentials of all inputs: ``scale · (x · U + bias)``, pairwise features times tables (G, F, L, L)."""
    dtype = features.unary.dtype
    unary = features.unary @ weights[:-1].astype(dtype) + weights[-1].astype(dtype)
    unary *= dtype.type(scale)
    batch = (len(features),) if features.batched else ()
    unary = unary.reshape(*batch, *features.structure.shape, weights.shape[1])
    pairwise = _pairwise(features, tables, potts)
    structure = features.structure
    if isinstance(structure, Grid):
        return Potentials.grid(unary, pairwise, connectivity=structure.connectivity, mask=mask)
    if isinstance(structure, Volume):  # the features of edges include the factors of the spacing
        made = Potentials.volume(unary, pairwise, connectivity=structure.connectivity, mask=mask)
        return replace(made, structure=structure)
    assert isinstance(structure, Graph)
    return Potentials.graph(unary, structure, pairwise, mask=mask)


def _pairwise(features: Features, tables: Array, potts: bool) -> Any:
    """Return the pairwise term in the smallest form that `Potentials` accept."""
    per_edge, structure = features.pairwise, features.structure
    n_groups, n_features = tables.shape[:2]
    if per_edge.shape[:2] == (1, 1) and n_groups == 1:  # the same on all edges of all images
        table = np.tensordot(per_edge[0, 0].astype(np.float64), tables[0], axes=1)
        return float(table[0, 0]) if potts else table
    shapes, sizes = structure.direction_shapes, structure.direction_sizes
    every = np.broadcast_to(per_edge, (len(per_edge), sum(sizes), n_features))
    lead = (len(every),) if features.batched and len(every) > 1 else ()
    values = []
    for d, part in enumerate(np.split(every, np.cumsum(sizes)[:-1], axis=1)):
        g = d if n_groups > 1 else 0
        if potts:
            values.append((part @ tables[g, :, 0, 0].astype(part.dtype)).reshape(*lead, *shapes[d]))
        else:  # separate columns for each group's features, so that all edges share one set of tables
            wide = np.zeros((*part.shape[:2], n_groups * n_features), part.dtype)
            wide[:, :, g * n_features : (g + 1) * n_features] = part
            values.append(wide.reshape(*lead, *shapes[d], n_groups * n_features))
    term = tuple(values) if isinstance(structure, Box) else values[0]
    return term if potts else Factored(term, tables.reshape(-1, *tables.shape[2:]))
