"""Label tables as a site sees them: by the kind of edge, then the neighbour's label, then this site's label last.

A kind is a group and an end: ``group + G · end``.  The neighbour's label is shifted by one and row 0 is zero, so that a
void neighbour (-1) adds nothing to a score and what it takes of a slope is dropped: no branch in the inner loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def direct(tables: Array) -> Array:
    """Tables (G, F, L, L) as (2G, L + 1, F, L)."""
    n_groups, n_features, n_labels, _ = tables.shape
    directed = np.zeros((2 * n_groups, n_labels + 1, n_features, n_labels))
    directed[:n_groups, 1:] = tables.transpose(0, 3, 1, 2)
    directed[n_groups:, 1:] = tables.transpose(0, 2, 1, 3)
    return directed


def fold(directed: Array, table_slope: Array) -> None:
    """Add slopes of directed tables (2G, L + 1, F, L) to those of the tables (G, F, L, L)."""
    n_groups = len(table_slope)
    table_slope += directed[:n_groups, 1:].transpose(0, 2, 3, 1)
    table_slope += directed[n_groups:, 1:].transpose(0, 2, 1, 3)
