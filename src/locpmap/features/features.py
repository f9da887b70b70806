"""Features: validated, immutable inputs of a log-linear model on a grid, a volume or a graph.

The model has weights ``U`` (D + 1, L), whose last row is a bias, and tables ``T`` (G, F, L, L).  The scores are::

    unary[n, i, k]       = Σ_d unary[n, i, d] · U[d, k]  +  U[D, k]
    pairwise[n, e, a, b] = Σ_f pairwise[n, e, f] · T[group[e], f, a, b]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from locpmap.arrays import Array, frozen, to_float, to_numpy
from locpmap.errors import InputError, InputTypeError
from locpmap.graphs import Box, Graph, Grid, Steps, Volume
from locpmap.graphs.grid import name_of
from locpmap.unaries import read_spacing, step_factors

CONSTANT = "constant"  # the pairwise feature that is 1 on every edge
DIRECTIONS = ("horizontal", "vertical", "diagonal", "antidiagonal")  # on grids with 4 or 8 neighbours


class Wiring(NamedTuple):
    """Graph as kernels read it: the last fields of `locpmap.kernels.likelihood.Scores`."""

    group: Array  # (E,) int32
    edges: Array
    indptr: Array
    neighbour: Array
    edge: Array
    end: Array


@lru_cache(maxsize=8)
def wiring_of(structure: Box | Graph, tied: bool) -> Wiring:
    """Return a structure as flat arrays.  The results are cached for streams of images of the same size."""
    near, sizes = structure.adjacency(), structure.direction_sizes
    group = np.zeros(sum(sizes), np.int32) if tied else np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    arrays = (group, structure.edges(), near.indptr, near.neighbour, near.edge, near.end)
    return Wiring(*(frozen(array) for array in arrays))


@dataclass(frozen=True, eq=False)
class Features:
    """D features per site and F features per edge, for one input or a batch.

    Create features with :meth:`grid`, :meth:`volume` or :meth:`graph`, which validate all arrays.  Images and volumes
    are converted to features by :class:`ImageFeatures`.

    Attributes:
        unary (array): Features of sites, (N, S, D).
        pairwise (array): Features of edges, (N, E, F).  Axes of length 1 are shared by all inputs or all edges.
        structure (Grid, Volume or Graph): Sites and edges.
        batched (bool): Whether the input had a batch axis.
        unary_names (tuple of str): Names of the D features per site.
        pairwise_names (tuple of str): Names of the F features per edge.

    Notes:
        Arrays are read-only, and both have the same precision, single or double.  Arrays of up to 16 MB are copied.
        Larger ones are shared with the caller if they are contiguous and in single or double precision.

    See Also:
        :class:`ImageFeatures`, :class:`CRF`
    """

    unary: Array  # (N, S, D)
    pairwise: Array  # (1|N, 1|E, F)
    structure: Box | Graph
    batched: bool
    unary_names: tuple[str, ...]
    pairwise_names: tuple[str, ...]

    @classmethod
    def grid(
        cls,
        unary: Any,
        pairwise: Any = None,
        *,
        connectivity: int | Steps = 4,
        unary_names: Sequence[str] | None = None,
        pairwise_names: Sequence[str] | None = None,
    ) -> Self:
        """Create features on a grid.

        Args:
            unary (array): Features per site, (H, W, D) or (N, H, W, D).  With D = 0 only the bias remains.
            pairwise (sequence of arrays, default None): Features per edge, one array per step: (H, W-1, F), (H-1, W, F)
                and, with 8 neighbours, twice (H-1, W-1, F), each with or without a leading batch axis.  None gives the
                single feature "constant", which is 1 on every edge.
            connectivity (int or tuple, default 4): 4 or 8 neighbours, or steps to further neighbours as in
                :class:`locpmap.graphs.Grid`.
            unary_names (sequence of str, default None): D names; None gives "feature 0", "feature 1" and so on.
            pairwise_names (sequence of str, default None): F names; None gives "constant" if ``pairwise`` is None, and
                otherwise "feature 0", "feature 1" and so on.  A feature named "constant" must be 1 on every edge.

        Returns:
            Features: The validated features.

        Raises:
            InputError: If a shape, a value or a name is invalid.

        Example:
            >>> lp.Features.grid(np.zeros((5, 2, 3, 4)))
            <Features: 5 inputs on a grid 2×3, 4 unary and 1 pairwise, float64>
        """
        sites = _sites(unary, ("H", "W"))
        height, width = sites.shape[-3:-1]
        return cls._build(Grid(height, width, connectivity), sites, pairwise, unary_names, pairwise_names)

    @classmethod
    def volume(
        cls,
        unary: Any,
        pairwise: Any = None,
        *,
        spacing: Any = None,
        connectivity: int = 6,
        unary_names: Sequence[str] | None = None,
        pairwise_names: Sequence[str] | None = None,
    ) -> Self:
        """Create features on a volume.

        Args:
            unary (array): Features per voxel, (depth, H, W, D) or (N, depth, H, W, D).
            pairwise (sequence of arrays, default None): Features per edge, one array per step of
                :class:`locpmap.graphs.Volume`: (depth, H, W-1, F), (depth, H-1, W, F), (depth-1, H, W, F) and so on,
                each with or without a leading batch axis.  None gives the single feature "constant".
            spacing (tuple of float, default None): Distances (dz, dy, dx) of neighbouring planes, rows and columns.
                The features of edges are multiplied by the factors of :meth:`locpmap.Potentials.volume`.
            connectivity (int, default 6): 6 or 26 neighbours.
            unary_names (sequence of str, default None): As for :meth:`grid`.
            pairwise_names (sequence of str, default None): As for :meth:`grid`.

        Returns:
            Features: The validated features.

        Raises:
            InputError: If a shape, a value or a name is invalid.

        Example:
            >>> lp.Features.volume(np.zeros((2, 3, 4, 1)), spacing=(2.0, 1.0, 1.0))
            <Features: one input on a volume 2×3×4, 1 unary and 1 pairwise, float64>
        """
        sites = _sites(unary, ("depth", "H", "W"))
        depth, height, width = sites.shape[-4:-1]
        volume = Volume(depth, height, width, connectivity)
        found = cls._build(volume, sites, pairwise, unary_names, pairwise_names)
        return found if spacing is None else found.spaced(spacing)

    @classmethod
    def graph(
        cls,
        unary: Any,
        edges: Any,
        pairwise: Any = None,
        *,
        unary_names: Sequence[str] | None = None,
        pairwise_names: Sequence[str] | None = None,
    ) -> Self:
        """Create features on any graph.

        Args:
            unary (array): Features per site, (S, D) or (N, S, D).  With D = 0 only the bias remains.
            edges (array or Graph): Pairs of sites (E, 2), each edge once.
            pairwise (array, default None): Features per edge, (E, F) or (N, E, F).  None gives the single feature
                "constant", which is 1 on every edge.
            unary_names (sequence of str, default None): D names; None gives "feature 0", "feature 1" and so on.
            pairwise_names (sequence of str, default None): F names; None gives "constant" if ``pairwise`` is None, and
                otherwise "feature 0", "feature 1" and so on.  A feature named "constant" must be 1 on every edge.

        Returns:
            Features: The validated features.

        Raises:
            InputError: If a shape, a value or a name is invalid.

        Example:
            >>> lp.Features.graph(np.zeros((3, 4)), [[0, 1], [1, 2]], np.ones((2, 5)))
            <Features: one input on a graph of 3 sites, 2 edges, 4 unary and 5 pairwise, float64>
        """
        sites = _sites(unary, ("S",))
        graph = edges if isinstance(edges, Graph) else Graph(sites.shape[-2], edges)
        if graph.n_sites != sites.shape[-2]:
            raise InputError(f"unary has {sites.shape[-2]} sites, expected the graph's {graph.n_sites}")
        return cls._build(graph, sites, pairwise, unary_names, pairwise_names)

    @classmethod
    def _build(
        cls,
        structure: Box | Graph,
        sites: Array,
        pairwise: Any,
        unary_names: Sequence[str] | None,
        pairwise_names: Sequence[str] | None,
    ) -> Self:
        batched = sites.ndim == len(structure.shape) + 2
        n_images = len(sites) if batched else 1
        unary = sites.reshape(n_images, structure.n_sites, sites.shape[-1])
        check_finite(unary, "unary")
        if pairwise is None:
            per_edge = np.ones((1, 1, 1), unary.dtype)
            pairwise_names = (CONSTANT,) if pairwise_names is None else pairwise_names
        else:
            per_edge = _parse_pairwise(pairwise, structure, n_images, batched)
            check_finite(per_edge, "pairwise")
        dtype = np.result_type(unary, per_edge)
        names = _parse_names(pairwise_names, per_edge.shape[-1], "pairwise_names")
        if CONSTANT in names:
            ones = per_edge[..., names.index(CONSTANT)]
            for value in (ones.min(initial=1.0), ones.max(initial=1.0)):
                if value != 1:
                    raise InputError(f"the pairwise feature {CONSTANT!r} contains {value}, expected 1 on every edge")
        return cls(
            frozen(unary.astype(dtype, copy=False)),
            frozen(per_edge.astype(dtype, copy=False)),
            structure,
            batched,
            _parse_names(unary_names, unary.shape[-1], "unary_names"),
            names,
        )

    def __repr__(self) -> str:
        if isinstance(self.structure, Box):
            where = f"{type(self.structure).__name__.lower()} {'×'.join(map(str, self.structure.shape))}"
        else:
            where = f"graph of {self.n_sites} sites, {len(self.structure.edges())} edges"
        inputs = f"{len(self)} inputs" if self.batched else "one input"
        counts = f"{self.n_unary} unary and {self.n_pairwise} pairwise"
        return f"<Features: {inputs} on a {where}, {counts}, {self.unary.dtype}>"

    def __len__(self) -> int:
        """Return the number of inputs; 1 without a batch axis."""
        return len(self.unary)

    @property
    def n_sites(self) -> int:
        """Number of sites, S."""
        return int(self.unary.shape[1])

    @property
    def n_unary(self) -> int:
        """Number of features per site without the bias, D."""
        return int(self.unary.shape[2])

    @property
    def n_pairwise(self) -> int:
        """Number of features per edge, F."""
        return int(self.pairwise.shape[2])

    @property
    def directions(self) -> tuple[str, ...]:
        """Names of the steps, which have separate tables unless these are tied; ("any",) on a graph."""
        return tuple(map(name_of, self.structure.steps)) if isinstance(self.structure, Box) else ("any",)

    def wiring(self, tied: bool) -> Wiring:
        """Return the graph as flat arrays, with group 0 for all edges if tied, otherwise one group per step.

        The arrays are built on first use, O(E log E), and cached.  They take 28 bytes per edge and 8 per site.

        Args:
            tied (bool): Whether the edges of all steps share one group.

        Returns:
            Wiring: Groups, ends and neighbour lists of the edges.
        """
        if tied not in self._wirings:
            self._wirings[tied] = wiring_of(self.structure, tied)
        return self._wirings[tied]

    @cached_property
    def _wirings(self) -> dict[bool, Wiring]:
        return {}  # filled on demand, and shared with the results of `take`

    def spaced(self, spacing: Any) -> Self:
        """Return the features of a volume with the given sides of voxels, which scale the features of edges.

        Args:
            spacing (tuple of float): As for :meth:`volume`.

        Returns:
            Features: The features, with the spacing in their structure.
        """
        assert isinstance(self.structure, Volume)
        sides = read_spacing(spacing)
        factors, per_edge = step_factors(sides, self.structure), self.pairwise
        if set(factors) != {1.0}:
            per_edge = per_edge * np.repeat(factors, self.structure.direction_sizes)[:, None].astype(per_edge.dtype)
        return replace(self, pairwise=frozen(per_edge), structure=replace(self.structure, spacing=sides))

    def take(self, images: slice | Array) -> Self:
        """Return some of the inputs.  The flat arrays are shared.

        Args:
            images (slice or array): A slice, which gives views, or an array of indices.

        Returns:
            Features: The selected inputs.

        Example:
            >>> len(lp.Features.grid(np.zeros((5, 2, 3, 4))).take(slice(1, 3)))
            2
        """
        if not len(np.arange(len(self))[images]):
            raise InputError(f"images is {images!r}, expected at least one of the {len(self)} inputs")
        unary = frozen(self.unary[images])
        pairwise = self.pairwise if len(self.pairwise) == 1 else frozen(self.pairwise[images])
        some = replace(self, unary=unary, pairwise=pairwise)
        some.__dict__["_wirings"] = self._wirings
        return some


def _parse_pairwise(value: Any, structure: Box | Graph, n_images: int, batched: bool) -> Array:
    """Return the pairwise features (1|N, E, F) from one array per step, or from a single array on a graph."""
    if isinstance(structure, Graph):
        return _per_edge(value, "pairwise", (len(structure.edges()),), n_images, batched)
    shapes = structure.direction_shapes
    names = [name_of(step) for step in structure.steps]
    if not isinstance(value, tuple | list) or len(value) != len(shapes):
        came = f"{len(value)} entries" if isinstance(value, tuple | list) else f"the type {type(value).__name__}"
        raise InputError(f"pairwise has {came}, expected a tuple with one array per step: {', '.join(names)}")
    parts = [
        _per_edge(array, f"pairwise ({name})", shape, n_images, batched)
        for array, name, shape in zip(value, names, shapes, strict=True)
    ]
    counts = [part.shape[-1] for part in parts]
    if len(set(counts)) > 1:
        came = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
        raise InputError(f"pairwise has different numbers of features ({came}), expected the same for all steps")
    images = max(len(part) for part in parts)
    return np.concatenate([np.broadcast_to(part, (images, *part.shape[1:])) for part in parts], axis=1)


def _sites(unary: Any, axes: tuple[str, ...]) -> Array:
    """Return the features of sites with the given axes, and with or without a leading one for inputs."""
    sites = _numbers(unary, "unary")
    if sites.ndim not in (len(axes) + 1, len(axes) + 2):
        one = ", ".join((*axes, "D"))
        raise InputError(f"unary has shape {sites.shape}, expected ({one}) or (N, {one})")
    if 0 in sites.shape[:-1]:
        raise InputError(f"unary is empty: it has shape {sites.shape}, expected at least one site")
    return sites


def _numbers(value: Any, name: str) -> Array:
    """Return a NumPy array in single or double precision; tensors on a GPU are copied to the host."""
    return to_float(to_numpy(value, name), name)


def _per_edge(value: Any, name: str, shape: tuple[int, ...], n_images: int, batched: bool) -> Array:
    """Validate the features of one step, (shape, F) or (N, shape, F), and return them as (1|N, edges, F)."""
    array = _numbers(value, name)
    single = array.ndim == len(shape) + 1 and array.shape[:-1] == shape
    many = batched and array.ndim == len(shape) + 2 and array.shape[:-1] == (n_images, *shape)
    if not single and not many:
        sizes = ", ".join(str(n) for n in shape)
        also = f" or ({n_images}, {sizes}, F)" if batched else ""
        raise InputError(f"{name} has shape {array.shape}, expected ({sizes}, F){also}")
    if array.shape[-1] == 0:
        raise InputError(f"{name} has shape {array.shape}, expected at least one feature per edge")
    return array.reshape(n_images if many else 1, int(np.prod(shape)), array.shape[-1])


def _parse_names(names: Any, count: int, argument: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"feature {k}" for k in range(count))
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"{argument} is {names!r}, expected a list of strings")
    if len(names) != count:
        raise InputError(f"{argument} holds {len(names)} names, expected one for each of the {count} features")
    if len(set(names)) < count:
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{argument} holds {twice!r} more than once, expected different names")
    return tuple(names)


def check_finite(array: Array, name: str) -> None:
    """Raise if the array contains NaN or infinities."""
    # Minimum and maximum need no extra memory and propagate NaN.
    for value in (array.min(initial=0.0), array.max(initial=0.0)):
        if not np.isfinite(value):
            raise InputError(f"{name} contains {value}, expected finite numbers")
