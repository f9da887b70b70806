"""Sequential decoding of max-product messages: each site takes its best label given the sites labelled before.

A labelled neighbour contributes its pairwise score, any other neighbour its message.  On a tree, with parents before
children, the result is a labelling of maximum score even if max-marginals tie.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.messages import directed_table


def decode_messages(model: Model, order: Array, messages: Array, labels: Array, lo: int, hi: int) -> None:
    """Fill ``labels`` (N, S) of images lo..hi in the given order; messages (N, 2E, L)."""
    for n in range(lo, hi):
        decode(model, n, model.unary[n], order, messages[n], labels[n])


def decode(model: Model, image: int, unary: Array, order: Array, messages: Array, y: Array) -> None:
    """Fill ``y`` (S,) for one image; ties go to the smallest label."""
    y[:] = -1
    ones = np.ones(len(model.edges))
    for i in order:
        scores = unary[i].astype(np.float64)
        for slot in range(model.indptr[i], model.indptr[i + 1]):
            label = y[model.neighbour[slot]]
            scores += messages[slot] if label < 0 else directed_table(model, image, slot, ones)[:, label]
        y[i] = (scores if scores.max() > -np.inf else unary[i]).argmax()
