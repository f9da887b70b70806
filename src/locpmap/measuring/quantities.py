"""Quantities of one label map, with one number per label: area, presence, components and perimeter.

Maps have shape (H, W) on a grid, (D, H, W) on a volume and (S,) on a graph. Masked sites have label -1 and are ignored,
also as neighbours. A site of a grid has 4 neighbours here and one of a volume 6, whatever the model's connectivity.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import one_of
from locpmap.graphs import Box, Graph, Grid, Volume

PerLabel = Callable[[Array], Any]  # function of one label map

NAMES = ("area", "presence", "components", "perimeter")


def named_quantity(quantity: str, structure: Box | Graph, n_labels: int) -> PerLabel:
    """Return the quantity with the given name as a function of a label map; raise for an unknown name."""
    if one_of("quantity", quantity, NAMES) == "area":
        return partial(area, n_labels=n_labels)
    if quantity == "presence":
        return partial(presence, n_labels=n_labels)
    if quantity == "components" and isinstance(structure, Box):
        return partial(components, n_labels=n_labels)
    neighbours = structure
    if isinstance(structure, Box):
        neighbours = (Grid if len(structure.shape) == 2 else Volume)(*structure.shape)
    over_edges = perimeter if quantity == "perimeter" else components_of_graph
    return partial(over_edges, n_labels=n_labels, edges=neighbours.edges())


def area(labels: Array, n_labels: int) -> Array:
    """Count the sites of each label; O(S).

    >>> area(np.array([[0, 0, 2], [-1, 2, 2]]), 4).tolist()
    [2, 0, 3, 0]
    """
    return np.bincount(labels.ravel() + 1, minlength=n_labels + 1)[1:]


def presence(labels: Array, n_labels: int) -> Array:
    """Return 1 for labels that occur and 0 for others; O(S).

    >>> presence(np.array([[0, 0, 2], [-1, 2, 2]]), 4).tolist()
    [1, 0, 1, 0]
    """
    return (area(labels, n_labels) > 0).astype(np.int64)


def perimeter(labels: Array, n_labels: int, edges: Array) -> Array:
    """Count the edges of each label to sites with another label; O(S + E).

    >>> perimeter(np.array([[0, 0, 2], [-1, 2, 2]]), 3, Grid(2, 3).edges()).tolist()
    [2, 0, 2]
    """
    first, second = labels.ravel()[edges.T]  # (E,) each
    between = (first != second) & (first >= 0) & (second >= 0)
    return area(first[between], n_labels) + area(second[between], n_labels)


def components(labels: Array, n_labels: int, least: int = 1) -> Array:
    """Count the connected components of each label with ``least`` or more sites, on a grid or volume; O(S).

    >>> components(np.array([[0, 2, 0], [2, 0, -1]]), 3).tolist()
    [3, 0, 2]
    """
    from scipy import ndimage

    joined = np.zeros([2 * n - 1 for n in labels.shape], bool)  # sites at even places, their edges between them
    even = (slice(None, None, 2),) * labels.ndim
    joined[even] = labels >= 0
    for axis in range(labels.ndim):
        between = (*even[:axis], slice(1, None, 2), *even[axis + 1 :])
        along = np.moveaxis(labels, axis, 0)
        joined[between] = np.moveaxis((along[1:] == along[:-1]) & (along[1:] >= 0), 0, axis)
    numbers = ndimage.label(joined)[0][even].ravel()
    sizes = np.bincount(numbers)
    label_of = np.zeros(len(sizes), np.int64)
    label_of[numbers] = labels.ravel()
    large = np.flatnonzero(sizes >= least)
    return np.bincount(label_of[large[large > 0]], minlength=n_labels)


def components_of_graph(labels: Array, n_labels: int, edges: Array) -> Array:
    """Count the connected components of each label on a graph; O(S + E).

    >>> components_of_graph(np.array([0, 0, 1, 0]), 2, Graph(4, [[0, 1], [1, 2], [2, 3]]).edges()).tolist()
    [2, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second = edges[labels[edges[:, 0]] == labels[edges[:, 1]]].T
    within = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(labels), len(labels)))
    part = connected_components(within, directed=False)[1]
    one_each = np.unique(part, return_index=True)[1]  # one site per component; `area` ignores masked ones
    return area(labels[one_each], n_labels)
