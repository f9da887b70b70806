"""Checks that a tile with a halo has the samples of the whole image."""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.inference import infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.potentials import Potentials

HEIGHT, WIDTH = 20, 24  # size of the whole image
TOP, BOTTOM, LEFT, RIGHT = 8, 14, 8, 15  # the interior of one tile


def tile_case(n_labels: int, form: str) -> tuple[np.ndarray, Any, Potentials]:
    """Return the unaries, the pairwise argument and the potentials of the whole image."""
    rng = np.random.default_rng(n_labels)
    unary = 0.5 * rng.normal(size=(HEIGHT, WIDTH, n_labels))
    if form == "weight":
        return unary, 1.0, Potentials.grid(unary, 1.0)
    if form == "table":
        table = np.eye(n_labels) + 0.1 * rng.normal(size=(n_labels, n_labels))
        return unary, table, Potentials.grid(unary, table)
    across, along = 0.5 + rng.random((HEIGHT, WIDTH)), 0.5 + rng.random((HEIGHT, WIDTH))
    return unary, (across, along), Potentials.grid(unary, (across[:, :-1], along[:-1]))


def check_tile(n_labels: int, form: str, sweeps: int, halo: int) -> None:
    """Check that the interior of a tile with a halo has the same samples as the whole image."""
    unary, weights, whole = tile_case(n_labels, form)
    rows, columns = slice(TOP - halo, BOTTOM + halo), slice(LEFT - halo, RIGHT + halo)
    if isinstance(weights, tuple):
        across, along = weights
        weights = (across[rows, columns][:, :-1], along[rows, columns][:-1])
    tile = Potentials.grid(unary[rows, columns], weights, window=(TOP - halo, LEFT - halo, WIDTH))
    decoder = LocPMAP(70, max_sweeps=sweeps, keep_samples=True)
    inner = np.s_[:, halo : halo + BOTTOM - TOP, halo : halo + RIGHT - LEFT]
    expected = infer(whole, decoder, seed=12).samples[:, TOP:BOTTOM, LEFT:RIGHT]
    np.testing.assert_array_equal(infer(tile, decoder, seed=12).samples[inner], expected)


def halo_is_sufficient(n_labels: int, sweeps: int, halo: int, vertical: bool) -> bool:
    """Return whether a tile of a line has the labels of the whole line after the given number of sweeps.

    Every edge is weaker than the previous one, so a site takes the label of its predecessor.  One site has label 1 from
    the start.  Each half sweep moves the label one site further, until it reaches the first site of the tile.
    """
    source, length = 3, 2 * sweeps + 12
    first = source + 2 * sweeps  # first site of the tile
    unary, start = np.zeros((1, length, n_labels)), np.zeros((1, length), int)
    unary[0, source, 1], start[0, source] = 100, 1
    weights = 10 - 0.1 * np.arange(length - 1)[None]

    def decode(begin: int) -> np.ndarray:
        line, edges = unary[:, begin:], weights[:, begin:]
        given = start[:, begin:].T if vertical else start[:, begin:]
        decoder = LocPMAP(5, max_sweeps=sweeps, temperature=1e-6, start=given, keep_samples=True)
        if vertical:
            pot = Potentials.grid(line.swapaxes(0, 1), (np.zeros((line.shape[1], 0)), edges.T), window=(begin, 0, 1))
        else:
            pot = Potentials.grid(line, (edges, np.zeros((0, line.shape[1]))), window=(0, begin, length))
        samples: np.ndarray = infer(pot, decoder, seed=12).samples.reshape(5, -1)[:, first - begin :]
        return samples

    whole = decode(0)
    assert (whole == ([1] + [0] * (length - first - 1))).all()
    return bool((decode(first - halo) == whole).all())
