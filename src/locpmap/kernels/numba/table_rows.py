"""Label tables as a site sees them: one row per label of the neighbour, its own labels along the row.

Rows are contiguous for both ends of an edge, which the inner loops over labels need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.kernels.likelihood import Scores


def rows_of_tables(scores: Scores, lo: int, hi: int) -> tuple[Any, tuple[int, int, int]]:
    """Return the rows of tables (1|N, G, F, L, L) as one flat array, and what to add per end, image and group.

    The row of label b at the neighbour begins at ``end · ends + n · images + (group · F + f) · L² + b · L``.  Only
    images lo..hi are held where images differ.
    """
    tables = scores.tables[lo:hi] if len(scores.tables) > 1 else scores.tables
    rows = np.stack([tables.swapaxes(3, 4), tables]).reshape(-1)
    per_image = tables[0].size if len(tables) else 0
    return rows, (tables.size, per_image if len(scores.tables) > 1 else 0, lo)
