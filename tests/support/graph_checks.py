"""Checks of colours and windows."""

from __future__ import annotations

import numpy as np

from locpmap.graphs import Grid


def check_independent(edges: np.ndarray, colours: np.ndarray) -> None:
    """Check that no edge joins two sites of one colour."""
    same = colours[edges[:, 0]] == colours[edges[:, 1]]
    assert not same.any(), f"edge {edges[same][:1].tolist()} joins two sites of one colour"


def check_window(window: Grid, whole: Grid) -> None:
    """Check that sites, colours and edges of a window are those of the whole grid."""
    rows, columns = (slice(a, a + n) for a, n in ((window.row, window.height), (window.column, window.width)))
    ids = np.arange(whole.n_sites).reshape(whole.shape)[rows, columns].ravel()
    np.testing.assert_array_equal(window.site_ids(), ids)
    np.testing.assert_array_equal(window.colours(), np.unique(whole.colours()[ids], return_inverse=True)[1])
    inside = np.isin(whole.edges(), ids).all(axis=1)
    np.testing.assert_array_equal(ids[window.edges()], whole.edges()[inside])
