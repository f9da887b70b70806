"""Label tables for both ends of an edge: one row per label of the neighbour, the site's own labels along the row.

Rows are contiguous for both ends, for the inner loops over labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.kernels.likelihood import Scores


def rows_of_tables(scores: Scores, lo: int, hi: int) -> tuple[Any, tuple[int, int, int]]:
    """Return the rows of tables (1|N, G, F, L, L) as a flat array, and ``(ends, images, first_image)``.

    The row of neighbour label b starts at ``end · ends + (n - first_image) · images + (group · F + f) · L² + b · L``.
    If images have different tables, only those of images lo..hi are stored.
    """
    tables = scores.tables[lo:hi] if len(scores.tables) > 1 else scores.tables
    rows = np.stack([tables.swapaxes(3, 4), tables]).reshape(-1)
    per_image = tables[0].size if len(tables) else 0
    return rows, (tables.size, per_image if len(scores.tables) > 1 else 0, lo)
