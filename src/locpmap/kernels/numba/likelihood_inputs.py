"""Inputs of the likelihood kernels in few types, because Numba compiles one version of a kernel per combination."""

from typing import Any

import numpy as np

from locpmap.kernels.likelihood import Scores


def read_only(*arrays: Any) -> tuple[Any, ...]:
    """Return read-only views of arrays.

    Whether an array is writeable is part of its type.  Callers pass both kinds, so without these views a kernel with
    five inputs could be compiled 32 times.
    """
    views = tuple(np.asarray(array).view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def length_type(length: int, *, known: bool) -> Any:
    """Return an object whose ``len`` is the length of an axis.

    A tuple has its length in its type, so loops over a known length are unrolled.  All other lengths share one compiled
    version.
    """
    return (0,) * length if known else np.empty(length)


def rows_of_tables(scores: Scores, lo: int, hi: int) -> tuple[Any, tuple[int, int, int]]:
    """Return the rows of tables (1|N, G, F, L, L) as a flat array, and ``(ends, images, first_image)``.

    A row has the scores of a site's labels given a label of its neighbour; it is contiguous for both ends of an edge.
    The row of neighbour label b starts at ``end · ends + (n - first_image) · images + (group · F + f) · L² + b · L``.
    If images have different tables, only those of images lo..hi are stored.
    """
    tables = scores.tables[lo:hi] if len(scores.tables) > 1 else scores.tables
    rows = np.stack([tables.swapaxes(3, 4), tables]).reshape(-1)
    per_image = tables[0].size if len(tables) else 0
    return rows, (tables.size, per_image if len(scores.tables) > 1 else 0, lo)
