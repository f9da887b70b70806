"""Derivatives of losses in the pairwise scores (*gradient*), from the derivatives in the local scores (*residuals*).

A neighbour's label b adds ``pairwise[a, b]`` to the local score of label a.  The derivative in the pairwise scores of
an edge is therefore ``residual · 1{neighbour's label = b}``, summed over both ends and all samples.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.likelihood import Part, Scores


def pair_gradient(
    scores: Scores, samples: Array, residual: Array, block_of: Array | None, gradient: Array, part: Part
) -> None:
    """Add the derivatives of the edges of a part to ``gradient``.

    ``samples`` (N, S, M) are -1 at void sites; ``residual`` (N, S, M, L) is 0 at sites without a loss.  If
    ``block_of`` (S,) is given, edges inside a block are skipped.
    """
    for n in range(part.lo, part.hi):
        for e in range(part.begin, part.stop):
            i, j = scores.edges[e]
            if block_of is not None and block_of[i] == block_of[j]:
                continue
            derivative = np.zeros((scores.unary.shape[2],) * 2)
            for m in range(samples.shape[2]):
                if samples[n, j, m] >= 0:
                    derivative[:, samples[n, j, m]] += residual[n, i, m]
                if samples[n, i, m] >= 0:
                    derivative[samples[n, i, m]] += residual[n, j, m]
            add_edge_gradient(scores, n, e, derivative, gradient)


def pair_table(scores: Scores, n: int, slot: int) -> Array:
    """Return the scores of the edge at a slot, indexed [label of the slot's site, label of the neighbour]."""
    e = scores.edge[slot]
    if scores.potts:
        return edge_features(scores, n, e)[0] * np.eye(scores.unary.shape[2])
    tables = scores.tables[n if len(scores.tables) > 1 else 0]
    table = np.einsum("f,fab->ab", edge_features(scores, n, e), tables[scores.group[e]])
    return table if scores.end[slot] == 0 else table.T


def edge_features(scores: Scores, n: int, e: int) -> Array:
    """Return the features of an edge, (F,)."""
    features = scores.features[n if len(scores.features) > 1 else 0]
    return features[e if len(features) > 1 else 0].astype(np.float64)


def add_edge_gradient(scores: Scores, n: int, e: int, derivative: Array, gradient: Array) -> None:
    """Add the derivative (L, L) with respect to an edge's scores, indexed from its first end, to ``gradient``."""
    if scores.potts:
        gradient[n, e] += np.trace(derivative)
    else:
        place = gradient[n if len(gradient) > 1 else 0, scores.group[e]]
        place += np.multiply.outer(edge_features(scores, n, e), derivative)
