"""Quantities of one label map, with one number per label: area, presence, components, perimeter, volume and surface.

Maps have shape (H, W) on a grid, (D, H, W) on a volume and (S,) on a graph. Masked sites have label -1 and are ignored,
also as neighbours. A site of a grid has 4 neighbours here and one of a volume 6, whatever the model's connectivity.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, one_of
from locpmap.graphs import Box, Graph, Grid, Volume, ends_of

PerLabel = Callable[[Array], Any]  # function of one label map

NAMES = ("area", "presence", "components", "perimeter")
OF_VOLUMES = ("volume", "surface")
N_POINTS = 20_000  # on a sphere, for the weights of directions


def named_quantity(quantity: str, structure: Box | Graph, n_labels: int) -> PerLabel:
    """Return the quantity with the given name as a function of a label map; raise for an unknown name."""
    if one_of("quantity", quantity, NAMES + OF_VOLUMES) == "area":
        return partial(area, n_labels=n_labels)
    if quantity in OF_VOLUMES:
        if not isinstance(structure, Volume):
            raise InputError(
                f"quantity is {quantity!r}, which needs a volume (D, H, W), expected 'area' or 'perimeter'"
            )
        function = volume if quantity == "volume" else surface
        return partial(function, n_labels=n_labels, spacing=structure.spacing or (1.0, 1.0, 1.0))
    if quantity == "presence":
        return partial(presence, n_labels=n_labels)
    if quantity == "components" and isinstance(structure, Box):
        return partial(components, n_labels=n_labels)
    neighbours = structure
    if isinstance(structure, Box):
        neighbours = (Grid if len(structure.shape) == 2 else Volume)(*structure.shape)
    over_edges = perimeter if quantity == "perimeter" else components_of_graph
    return partial(over_edges, n_labels=n_labels, edges=neighbours.edges())


def unit_of(quantity: str, structure: Box | Graph) -> str:
    """Return the unit of a named quantity in words, or "" if it has none.

    >>> unit_of("volume", Volume(2, 3, 4)), unit_of("volume", Volume(2, 3, 4, spacing=(1.0, 1.0, 1.0)))
    ('voxels', 'cubic units of the spacing (mm³ for mm)')
    """
    if quantity == "area":
        return "sites" if isinstance(structure, Graph) else "voxels" if isinstance(structure, Volume) else "pixels"
    if quantity not in OF_VOLUMES:
        return ""
    if getattr(structure, "spacing", None) is None:
        return "voxels" if quantity == "volume" else "faces of voxels, which are taken as cubes"
    return (
        "cubic units of the spacing (mm³ for mm)"
        if quantity == "volume"
        else "square units of the spacing (mm² for mm)"
    )


def area(labels: Array, n_labels: int) -> Array:
    """Count the sites of each label; O(S).

    >>> area(np.array([[0, 0, 2], [-1, 2, 2]]), 4).tolist()
    [2, 0, 3, 0]
    """
    return np.bincount(labels.ravel() + 1, minlength=n_labels + 1)[1:]


def volume(labels: Array, n_labels: int, spacing: tuple[float, ...]) -> Array:
    """Return the volume of each label: the number of its voxels times the volume of a voxel; O(S).

    >>> volume(np.array([[[0, 0, 2]]]), 3, (2.0, 1.0, 0.5)).tolist()
    [2.0, 0.0, 1.0]
    """
    return area(labels, n_labels) * math.prod(spacing)


def surface(labels: Array, n_labels: int, spacing: tuple[float, ...]) -> Array:
    """Return the area of the surface between each label and the others, by Crofton's formula; O(13 · S).

    The area is twice the mean, over the directions of lines, of the number of crossings times the cross-section of a
    line. The lines join voxels with their 26 neighbours. The border of the volume and masked voxels do not count.

    >>> z, y, x = np.indices((25, 25, 25)) - 12
    >>> ball = (x**2 + y**2 + z**2 < 100).astype(int)
    >>> (surface(ball, 2, (1.0, 1.0, 1.0)) / (4 * np.pi * 100)).round(2).tolist()
    [0.99, 0.99]
    """
    found = np.zeros(n_labels)
    for step, share in zip(Volume(1, 1, 1, 26).steps, crossing_areas(spacing), strict=True):
        first, second = (labels[ends] for ends in ends_of(step, *labels.shape))
        cross = (first != second) & (first >= 0) & (second >= 0)
        for end in (first, second):
            found += share * np.bincount(end[cross], minlength=n_labels)
    return found


@cache
def crossing_areas(spacing: tuple[float, ...]) -> Array:
    """Return the surface area that one crossing represents, in each of the 13 directions.

    The weight of a direction is the part of the sphere that is closer to it than to the others, for evenly spread
    points on the sphere.
    """
    moves = np.array(Volume(1, 1, 1, 26).steps) * np.array(spacing)
    lengths = np.linalg.norm(moves, axis=1)
    height = (2 * np.arange(N_POINTS) + 1) / N_POINTS - 1
    angle = np.pi * (1 + np.sqrt(5)) * np.arange(N_POINTS)
    flat = np.sqrt(1 - height**2)
    points = np.stack([height, flat * np.cos(angle), flat * np.sin(angle)])
    nearest = np.abs(moves / lengths[:, None] @ points).argmax(axis=0)
    return 2 * np.bincount(nearest, minlength=len(moves)) / N_POINTS * math.prod(spacing) / lengths


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
