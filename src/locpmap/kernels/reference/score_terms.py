"""The score of a labelling as a sum of terms of sites, so that threads can divide the work."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables


def score_terms(model: Model, labels: Array, terms: Array, lo: int, hi: int, begin: int, stop: int) -> None:
    """Fill ``terms`` (N, S) with each site's unary score plus the scores of the edges whose first end it is."""
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            slots = np.arange(model.indptr[i], model.indptr[i + 1])
            slots = slots[model.end[slots] == 0]
            tables = edge_tables(model, n, model.edge[slots])
            pairs = tables[np.arange(len(slots)), labels[n, i], labels[n, model.neighbour[slots]]]
            terms[n, i] = model.unary[n, i, labels[n, i]] + pairs.sum()
