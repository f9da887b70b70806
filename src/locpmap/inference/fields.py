"""`ErrorFields`: errors that neighbouring sites share, as random terms of LocPMAP's samples."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array, Restore, to_numpy
from locpmap.errors import InputError, whole_number
from locpmap.graphs import Graph
from locpmap.kernels.fields import MAX_CELL, MAX_SCALES, Fields, quantised
from locpmap.potentials import Potentials

LEAST_PRESENCE = 1e-6
MAX_SIDE = 2**15 - 4  # of volumes with fields: their nodes have 16 bits along each axis


@dataclass(frozen=True, eq=False)
class ErrorFields:
    """Smooth random errors of the unary scores, at several scales, drawn anew for every sample of LocPMAP.

    The errors of a network at neighbouring pixels are similar, and independent noise per pixel does not represent
    that.  With error fields, the samples are label maps that differ in whole regions, and the uncertainty of areas,
    counts and lengths is realistic at every scale.

    Args:
        sizes (array, default ()): Standard deviations of the fields, in units of the unary scores, from the finest to
            the coarsest scale: (J,), (J, L) per label, or (N, J, L) per image and label.
        cell (int, default 4): Side of a cell of the finest scale in pixels or voxels: 1, 2, 4, 8 or 16.  The cells of
            each further scale have twice the side.
        shared (float or array, default 0.0): Standard deviation of an offset that all sites of an image share: a
            number, (L,) or (N, L).
        presence (array, default None): Probability that each label occurs in the image, (L,) or (N, L), from 1e-6 to
            1, and 1 for at least one label.  Each sample excludes label k with probability ``1 - presence[k]``.  In
            the other samples its scores increase by ``-log presence[k]``.  It cannot be combined with scores of -inf.
        clusters (array, default None): For graphs, the cluster of every site at each scale, (J, S) integers, such as
            :func:`locpmap.graphs.cluster_hierarchy` returns.  The sites of a cluster share the value of the field.

    Notes:
        Let f[j, k] be independent Gaussian fields with variance 1, for scales j and labels k, and z[k] independent
        standard normal variables.  A sample m of LocPMAP is a sample for the unary scores ::

            unary[i, k] + Σ_j sizes[j, k] · f[j, k](i) + shared[k] · z[k]

        with fields and offsets drawn for this sample.  Given the fields, the theorem of LocPMAP holds unchanged.  On a
        grid, a field is the bilinear interpolation of normal values at the corners of cells, at a random position; on
        a volume, cells are cubes and the interpolation is trilinear.  The values depend on the seed, the image, the
        sample, the scale, the label and the cell.  They do not depend on threads, batches or tiles, with one exception:
        sizes per image, (N, J, L), are rounded to a unit that the batch shares, so results can differ slightly between
        batches.

    Example:
        >>> pot = lp.Potentials.grid(np.zeros((32, 32, 3)), 1.0)
        >>> fields = lp.ErrorFields(sizes=[0.5, 1.0, 1.0], shared=0.5)
        >>> result = lp.infer(pot, lp.LocPMAP(n_samples=20, fields=fields, keep_samples=True), seed=0)
        >>> result.samples.shape
        (20, 32, 32)

    See Also:
        :class:`LocPMAP`, :func:`measure`
    """

    sizes: Any = ()
    cell: int = 4
    shared: Any = 0.0
    presence: Any = None
    clusters: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cell", whole_number("cell", self.cell, 1, MAX_CELL))
        if self.cell & (self.cell - 1):
            raise InputError(f"cell is {self.cell}, expected 1, 2, 4, 8 or 16")
        for name in ("sizes", "shared"):
            array = to_numpy(getattr(self, name), name).astype(np.float64)
            if not (np.isfinite(array) & (array >= 0)).all():
                raise InputError(f"{name} holds a negative number, NaN or infinity, expected finite ones of at least 0")
            object.__setattr__(self, name, array)
        if self.sizes.ndim not in (1, 2, 3) or self.n_scales > MAX_SCALES:
            raise InputError(
                f"sizes has shape {self.sizes.shape}, expected (J,), (J, L) or (N, J, L) with J up to {MAX_SCALES}"
            )

    @property
    def n_scales(self) -> int:
        """Number of scales."""
        return int(self.sizes.shape[max(0, self.sizes.ndim - 2)])

    def on(self, potentials: Potentials) -> Fields | None:
        """Return the fields in the form that kernels read, None if all are 0; raise if they do not fit the model."""
        n_images, n_labels = potentials.n_images, potentials.n_labels
        sizes = self.sizes[:, None] if self.sizes.ndim == 1 else self.sizes
        sizes = sizes if sizes.ndim == 3 else sizes[None]  # (1|N, J, 1|L)
        sizes = _fitted("sizes", sizes, (n_images, self.n_scales, n_labels))
        shared = _fitted("shared", np.atleast_1d(self.shared), (n_images, n_labels))
        clusters = self._clusters_on(potentials)
        presence = _checked_presence(self.presence, potentials)
        if not sizes.any() and not shared.any() and (presence == 1).all():
            return None
        cell, n_axes = 1 if clusters is not None else self.cell, max(2, len(potentials.structure.shape))
        return quantised(sizes, cell, shared, presence, clusters, n_axes)

    def within(self, side: int) -> Self:
        """Return the fields for a grid whose larger side is ``side``: coarser scales become part of ``shared``.

        >>> lp.ErrorFields([0.5, 3.0], shared=4.0).within(4)
        ErrorFields(sizes=array([0.5]), cell=4, shared=array(5.), presence=None, clusters=None)
        """
        axis, n_scales = max(0, self.sizes.ndim - 2), sum(self.cell << j <= side for j in range(self.n_scales))
        if n_scales == self.n_scales and self.sizes.any():
            return self
        fine, coarse = np.split(self.sizes, [n_scales], axis)
        shared = np.sqrt(self.shared**2 + np.square(coarse).sum(axis))
        return replace(self, sizes=fine if fine.any() else (), shared=shared)

    def of_image(self, n: int) -> Self:
        """Return the fields of image n of a batch."""
        sizes = self.sizes[n] if self.sizes.ndim == 3 and len(self.sizes) > 1 else self.sizes
        shared = self.shared[n] if self.shared.ndim == 2 and len(self.shared) > 1 else self.shared
        presence = None if self.presence is None else to_numpy(self.presence, "presence")
        if presence is not None and presence.ndim == 2:
            presence = presence[n if len(presence) > 1 else 0]
        return replace(self, sizes=sizes, shared=shared, presence=presence)

    def _clusters_on(self, potentials: Potentials) -> Array | None:
        """Return the clusters of a graph, None for a grid; check the scales."""
        structure = potentials.structure
        if not isinstance(structure, Graph):
            if self.clusters is not None:
                raise InputError("clusters is given for a grid or a volume, expected None: they have cells")
            if len(structure.shape) == 3 and max(structure.whole_shape) > MAX_SIDE:
                raise InputError(f"the volume has a side of {max(structure.whole_shape)}, expected at most {MAX_SIDE}")
            check_scales(self.n_scales, self.cell, max(structure.whole_shape))
            return None
        if self.clusters is None:
            if self.n_scales:
                raise InputError("sizes is given for a graph without clusters: see locpmap.graphs.cluster_hierarchy")
            return None
        found = to_numpy(self.clusters, "clusters")
        if found.shape != (self.n_scales, structure.n_sites) or found.dtype.kind not in "iu":
            raise InputError(
                f"clusters has shape {found.shape} and dtype {found.dtype}, expected integers of shape"
                f" {(self.n_scales, structure.n_sites)}: one row per scale in sizes"
            )
        if found.size and (found.min() < 0 or found.max() >= structure.n_sites):
            raise InputError(f"clusters holds a number outside 0 to {structure.n_sites - 1}, expected cluster numbers")
        return found.astype(np.int64)


def check_scales(n_scales: int, cell: int, largest: int) -> None:
    """Raise InputError if the cells of the coarsest scale are larger than the larger side of a grid."""
    coarsest = cell << max(0, n_scales - 1)
    if n_scales and coarsest > largest:
        raise InputError(
            f"sizes has {n_scales} scales with cells of up to {coarsest} pixels, expected at most the larger side of"
            f" the grid, {largest}: use shared for errors of the whole image"
        )


def _fitted(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of the shape, whose first axis has length 1 where it is shared by all images."""
    array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    target = (len(array) if len(array) in (1, shape[0]) else shape[0], *shape[1:])
    try:
        return np.ascontiguousarray(np.broadcast_to(array, target))
    except ValueError:
        raise InputError(
            f"{name} has shape {array.shape}, expected one that fits {shape}: images, scales or labels of the model"
        ) from None


def _checked_presence(presence: Any, potentials: Potentials) -> Array:
    """Check the presence and return it as (1|N, L)."""
    shape = (potentials.n_images, potentials.n_labels)
    if presence is None:
        return np.ones((1, shape[1]))
    array = to_numpy(presence, "presence").astype(np.float64)
    if array.shape not in (shape, shape[1:]):
        raise InputError(f"presence has shape {array.shape}, expected {shape[1:]}, or {shape} for each image")
    if not ((array >= LEAST_PRESENCE) & (array <= 1)).all():
        raise InputError(f"presence holds a number outside {LEAST_PRESENCE:g} to 1, expected probabilities")
    if not (array == 1).any(axis=-1).all():
        raise InputError("presence is below 1 for all labels, expected 1 for at least one of them")
    if potentials.forbids_labels:
        forbidden = Restore()((potentials.unary == -np.inf).any(axis=2))  # also True at masked sites
        counted = forbidden if potentials.masked is None else forbidden & ~Restore()(potentials.masked)
        if (counted.any(axis=1) & (array < 1).any(axis=-1)).any():
            raise InputError(
                "presence is given with scores of -inf, expected finite scores: a site could lose all labels"
            )
    return array.reshape(-1, shape[1])
