"""Exact log Z, marginals and MAP of a narrow grid of any length, one site at a time.

The recurrence runs over the sites row by row and stores a value for every labelling of the *frontier*: the last
`width` sites, one per column.  Site (r, c) replaces the frontier's label in column c.  The old label there belongs to
its upper neighbour, the label in column c − 1 to its left neighbour.  A virtual row above the first has label 0 and no
couplings, so the first row is no special case.  ``logaddexp`` gives log Z, ``maximum`` the MAP score.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .models import Floats, Ints

MAX_STATES = 1100


class TransferMatrix:
    """Exact inference on a ``GridModel`` whose shorter side w has ``L**w`` frontier states, at most MAX_STATES.

    Time O(H · W · L**(w + 1)); memory O(H · W · L**w) for marginals and MAP labels, O(L**w) for log Z.
    """

    def __init__(self, unary: Floats, horizontal: Floats, vertical: Floats) -> None:
        self.transposed = unary.shape[1] > unary.shape[0]
        if self.transposed:
            unary = unary.swapaxes(0, 1)
            horizontal, vertical = vertical.swapaxes(0, 1), horizontal.swapaxes(0, 1)
        self.unary, self.horizontal, self.vertical = unary, horizontal, vertical
        self.height, self.width, self.n_labels = unary.shape
        if self.n_labels**self.width > MAX_STATES:
            raise ValueError(f"{self.n_labels}**{self.width} frontier states; expected at most {MAX_STATES}")
        self.sites = list(np.ndindex(self.height, self.width))

    @property
    def log_partition(self) -> float:
        *_, before_first = self._backward(np.logaddexp)
        return float(before_first[0])

    @property
    def map_score(self) -> float:
        *_, before_first = self._backward(np.maximum)
        return float(before_first[0])

    @property
    def marginals(self) -> Floats:
        """``p(y_i)``, (H, W, L)."""
        after = list(self._backward(np.logaddexp))[::-1]  # after[t]: value of sites from t on, given the frontier
        log_partition = after[0][0]
        marginals = np.empty_like(self.unary)
        forward = np.full(self.n_labels**self.width, -np.inf)
        forward[0] = 0.0
        for t, (r, c) in enumerate(self.sites):
            before = forward.reshape(self._axes(c))[:, :, :, None, :]
            forward = np.logaddexp.reduce(before + self._local(r, c), axis=2).ravel()
            belief = np.exp(forward + after[t + 1] - log_partition).reshape(self._axes(c))
            marginals[r, c] = belief.sum(axis=(0, 1, 3))
        return self._undo_transposition(marginals)

    @property
    def map_labels(self) -> Ints:
        """A labelling of largest score, (H, W), chosen site by site using the best score of the later sites."""
        after = list(self._backward(np.maximum))[::-1]
        labels = np.zeros((self.height + 1, self.width), np.int64)  # row 0 is the virtual one
        for t, (r, c) in enumerate(self.sites):
            frontier = np.concatenate([labels[r + 1, :c], labels[r, c:]])
            outer, right = (_number(part, self.n_labels) for part in (frontier[: max(c - 1, 0)], frontier[c + 1 :]))
            left, upper = (frontier[c - 1] if c else 0), frontier[c]
            value = self._local(r, c)[0, left, upper, :, 0] + after[t + 1].reshape(self._axes(c))[outer, left, :, right]
            labels[r + 1, c] = value.argmax()
        return self._undo_transposition(labels[1:])

    def _backward(self, add: np.ufunc) -> Iterator[Floats]:
        """Yield the value of the sites after each site given the frontier, from the last site to before the first."""
        value = np.zeros(self.n_labels**self.width)
        yield value
        for r, c in reversed(self.sites):
            value = add.reduce(value.reshape(self._axes(c))[:, :, None, :, :] + self._local(r, c), axis=3).ravel()
            yield value

    def _axes(self, c: int) -> tuple[int, int, int, int]:
        """Return the frontier's axes (columns before the left neighbour, left neighbour, column c, columns after c)."""
        n = self.n_labels
        return (n ** (c - 1), n, n, n ** (self.width - 1 - c)) if c else (1, 1, n, n ** (self.width - 1))

    def _local(self, r: int, c: int) -> Floats:
        """Return the score terms of site (r, c), (1, left label, upper label, its label, 1)."""
        local = self.unary[r, c][None, None, :]
        if r:
            local = local + self.vertical[r - 1, c][None, :, :]
        if c:
            local = local + self.horizontal[r, c - 1][:, None, :]
        n = self.n_labels
        return np.broadcast_to(local, (n if c else 1, n, n))[None, ..., None]

    def _undo_transposition(self, field: np.ndarray) -> np.ndarray:
        return field.swapaxes(0, 1) if self.transposed else field


def _number(labels: Ints, n_labels: int) -> int:
    """Encode the labels as the digits of a number, the last one fastest."""
    return int(np.polyval(labels, n_labels)) if len(labels) else 0
