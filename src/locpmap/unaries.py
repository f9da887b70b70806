"""Checks of unary scores, masks, windows and spacings."""

import math
from typing import Any

import numpy as np

from locpmap.arrays import (
    Array,
    copy_if_small,
    extremes,
    frozen,
    namespace,
    place_like,
    refuse_masked,
    to_float,
    to_numpy,
)
from locpmap.errors import InputError
from locpmap.graphs import Box, Graph, ends_of

MOST_SPACING = 1e12  # side of a voxel, in any unit


def parse_unary(unary: Any, axes: tuple[str, ...]) -> Array:
    """Return the scores with the given site axes and one for labels, with or without a leading one for images."""
    refuse_masked(unary, "unary")
    scores = to_float(unary, "unary")
    if scores.ndim not in (len(axes) + 1, len(axes) + 2):
        sites = ", ".join(axes)
        raise InputError(f"unary has shape {tuple(scores.shape)}, expected ({sites}, L) or (N, {sites}, L)")
    if 0 in scores.shape:
        raise InputError(f"unary is empty: it has shape {scores.shape}, expected no axis of length 0")
    return scores


def check_window(window: Any, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the whole numbers of a window, or an empty tuple if there is none."""
    if window is None:
        return ()
    if np.shape(window) != (len(names),) or np.asarray(window).dtype.kind not in "iu":
        raise InputError(f"window is {window!r}, expected whole numbers ({', '.join(names)})")
    return tuple(int(n) for n in window)


def read_spacing(spacing: Any, names: tuple[str, ...] = ("dz", "dy", "dx")) -> tuple[float, ...]:
    """Return the sides of a voxel or a pixel; one number stands for equal sides."""
    given = np.asarray(spacing) if isinstance(spacing, str | int | float) else to_numpy(spacing, "spacing")
    fits = given.shape in ((), (len(names),)) and given.dtype.kind in "fiu"
    given = given.astype(np.float64) if fits else given
    if not fits or not ((given >= 1 / MOST_SPACING) & (given <= MOST_SPACING)).all():  # squares and cubes stay finite
        expected = f"a number from {1 / MOST_SPACING:g} to {MOST_SPACING:g}, or {len(names)} of them"
        raise InputError(f"spacing is {spacing!r}, expected {expected}: ({', '.join(names)})")
    return tuple(np.broadcast_to(given, len(names)).tolist())


def step_factors(spacing: tuple[float, ...], box: Box) -> list[float]:
    """Return the factor of each step's scores: the smallest distance of neighbours divided by the step's length."""
    return [min(spacing) / math.hypot(*(np.array(spacing) * step)) for step in box.steps]


def dead_edges(structure: Box | Graph, masked: Any) -> Any:
    """Return which edges have a masked end, (1|N, E), for masks (1|N, S)."""
    if isinstance(structure, Graph):
        first, second = structure.edges().T
        return masked[:, first] | masked[:, second]
    sites = masked.reshape(-1, *structure.shape)
    ends = (ends_of(step, *structure.shape) for step in structure.steps)
    dead = [(sites[:, *first] | sites[:, *second]).reshape(len(sites), -1) for first, second in ends]
    return namespace(masked).concatenate(dead, 1)


def parse_mask(mask: Any, structure: Box | Graph, unary: Any) -> Any:
    """Return the validated mask, (1|N, S), on the device of the unaries."""
    array, n_images = to_numpy(mask, "mask"), len(unary)
    if array.dtype != np.bool_:
        raise InputError(f"mask has dtype {array.dtype}, expected booleans (True where a site is ignored)")
    if array.shape not in (structure.shape, (n_images, *structure.shape)):
        raise InputError(f"mask has shape {array.shape}, expected {structure.shape} with or without a batch axis")
    masked = array.reshape(-1, structure.n_sites)
    if masked.all(axis=1).any():
        raise InputError("mask ignores every site of an image, expected at least one site that is not ignored")
    return place_like(unary, frozen(copy_if_small(masked)))


def check_unary(unary: Any, structure: Box | Graph, batched: bool) -> float:
    """Return the smallest score; raise if a site has a NaN or +inf score, or no allowed label."""
    xp = namespace(unary)
    ((least, most),) = extremes(unary)
    if np.isfinite(least) and np.isfinite(most):  # fast path
        return least
    best = xp.amax(unary, 2)  # NaN and +inf propagate; -inf means that no label is allowed
    if xp.isfinite(best).all():
        return least
    image, site = (int(i) for i in xp.argwhere(~xp.isfinite(best))[0])
    where = tuple(int(i) for i in np.unravel_index(site, structure.shape))
    at = f"[{', '.join(str(i) for i in ((image,) if batched else ()) + where)}]"
    if best[image, site] == -np.inf:
        raise InputError(f"unary{at} is -inf for every label, expected at least one allowed label")
    raise InputError(f"unary{at} contains {float(best[image, site])}, expected finite numbers or -inf")
