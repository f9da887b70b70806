"""The score of a pair of labels on an edge.

Functions take single arrays, which kernels extract from the model before their loops.  Passing the whole model
would update the reference counts of all its arrays at every call, at ten times the cost of the arithmetic.
"""

from numba import njit


@njit(inline="always", error_model="numpy")
def potts_weight(features, n, edge):
    """Return the Potts weight of an edge, the score of equal labels."""
    return features[n if len(features) > 1 else 0, edge if features.shape[1] > 1 else 0, 0]


@njit(inline="always", error_model="numpy")
def table_score(features, tables, n, edge, end, here, there):
    """Return the score of label ``here`` at end 0 or 1 of an edge and ``there`` at the other, in any model."""
    n_features, e_features = (n if len(features) > 1 else 0), (edge if features.shape[1] > 1 else 0)
    n_tables, e_tables = (n if len(tables) > 1 else 0), (edge if tables.shape[1] > 1 else 0)
    first, second = (here, there) if end == 0 else (there, here)
    total = 0.0
    for f in range(features.shape[2]):
        total += features[n_features, e_features, f] * tables[n_tables, e_tables, f, first, second]
    return total
