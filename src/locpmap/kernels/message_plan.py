"""What message passing needs on every backend: when to damp, and which images are kept without logarithms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import cast, is_tensor, namespace
from locpmap.kernels.model import Array, Model

# The first sweeps are never damped: where messages settle by themselves they do so then, and damping would slow them.
UNDAMPED_SWEEPS = 10
# The linear domain is safe while a product of messages at one site stays above exp(-this), in double precision and in
# single, in which messages on a GPU may be.
MOST_RANGE = 300.0
MOST_RANGE_SINGLE = 40.0
# Tables that differ from edge to edge are expanded for it up to this many labels: at most 4 times the messages' memory.
MOST_LABELS = 8


class MessagePlan(NamedTuple):
    """How messages are passed on one graph."""

    order: Array  # sites in the order in which a sweep lets them send
    coloured: bool  # whether that is one colour class after another
    damping: float
    tolerance: float
    exact: bool  # whether one sweep says all there is to say
    undamped: int = UNDAMPED_SWEEPS


class Domain(NamedTuple):
    """Which images' messages are kept without logarithms."""

    couplings: Array  # (1|N, 1|E, ..) see `pass_linear`
    linear: Array  # (N,)
    n_linear: int

    @property
    def all_linear(self) -> bool:
        """Whether all images are."""
        return self.n_linear == len(self.linear)


def find_domain(model: Model) -> Domain:
    """Return the domain of each image's messages; waits for a GPU."""
    couplings, linear = linear_domain(model)
    return Domain(couplings, linear, int(linear.sum()))


def linear_weights(unary: Array) -> Array:
    """Return ``exp(unary)`` up to a factor per site, of which messages know nothing, (N, S, L).

    In double precision with a largest weight of 1, or, on a GPU, where that takes one operation, with a sum of 1.
    """
    if is_tensor(unary):
        return unary.softmax(2)
    return np.exp(cast(unary, "float64") - np.amax(unary, 2)[:, :, None])


def linear_domain(model: Model) -> tuple[Array, Array]:
    """Return the tables as `pass_linear` wants them, and which images (N,) are safe there."""
    n_images, _, n_labels = model.unary.shape
    xp = namespace(model.features)
    if model.potts:
        couplings = xp.exp(xp.stack([-model.features, model.features], 3).clip(max=0))
        spread = abs(model.features[:, :, 0])
    elif max(model.features.shape[1], model.tables.shape[1]) == 1 or n_labels <= MOST_LABELS:
        n_features = model.features.shape[2]
        tables = sum(model.features[:, :, f, None, None] * model.tables[:, :, f] for f in range(n_features))
        top = xp.amax(tables, (2, 3)).clip(min=float(np.finfo(np.float32).min))[:, :, None, None]
        spread = top[:, :, 0, 0] - xp.amin(tables, (2, 3))
        couplings = xp.exp(tables - top)
    else:
        return xp.zeros_like(model.features[:1, :1, :1, None]), xp.zeros_like(model.unary[:, 0, 0], dtype=xp.bool)
    spread = xp.broadcast_to(spread, (len(spread), len(model.edges)))
    largest, most = _largest_sums(model, spread)
    return couplings, (largest <= most).repeat(n_images // len(largest))


def _largest_sums(model: Model, spread: Any) -> tuple[Any, float]:
    """Return the largest sum of the spreads (1|N, E) at any site, (1|N,), on a GPU a bound, and what it may come to."""
    if is_tensor(spread):
        largest = spread.amax(1) * model.indptr.diff().amax() if spread.shape[1] else spread.sum(axis=1)
        return largest, MOST_RANGE if spread.itemsize == 8 else MOST_RANGE_SINGLE
    sums = [np.bincount(model.edges.T.ravel(), np.tile(row, 2)).max(initial=0) for row in spread]
    return np.array(sums), MOST_RANGE
