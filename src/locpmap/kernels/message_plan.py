"""Message passing on every backend: the plan (order, damping) and the domain of the messages.

Messages are stored as logarithms (log domain) or as plain numbers (*linear domain*).  The linear domain avoids
exponentials and logarithms.  It is used for sum-product on images where no product of messages can underflow.
"""

from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import cast, is_tensor, namespace
from locpmap.kernels.model import Array, Model

# The first sweeps are not damped: messages that converge without damping do so faster.
UNDAMPED_SWEEPS = 10
# The linear domain is used if the product of the messages at any site stays above exp(-MOST_RANGE).  The second value
# is for single precision, which messages on a GPU may have.
MOST_RANGE = 300.0
MOST_RANGE_SINGLE = 40.0
# Tables that differ between edges are expanded up to this number of labels: at most 4 times the messages' memory.
MOST_LABELS = 8


class MessagePlan(NamedTuple):
    """The schedule of message passing on one graph."""

    order: Array  # sites in the order in which they send in a sweep
    coloured: bool  # whether the order is one colour class after another
    damping: float
    tolerance: float
    exact: bool  # whether one sweep computes the exact messages
    undamped: int = UNDAMPED_SWEEPS


class Domain(NamedTuple):
    """The images whose messages are stored in the linear domain."""

    couplings: Array  # (1|N, 1|E, ..) exp of the tables, see `pass_linear`
    linear: Array  # (N,) bool
    n_linear: int

    @property
    def all_linear(self) -> bool:
        """Whether all images are in the linear domain."""
        return self.n_linear == len(self.linear)


def find_domain(model: Model) -> Domain:
    """Return the domain of each image's messages; synchronises with a GPU."""
    couplings, linear = linear_domain(model)
    return Domain(couplings, linear, int(linear.sum()))


def to_logarithms(messages: Array, domain: Domain | None) -> Array:
    """Replace the messages of linear-domain images by their logarithms, in place."""
    log = namespace(messages).log
    if domain is not None and domain.all_linear:
        log(messages, out=messages)
    elif domain is not None and domain.n_linear:
        for n in namespace(messages).argwhere(domain.linear)[:, 0].tolist():
            log(messages[n], out=messages[n])
    return messages


def linear_weights(unary: Array) -> Array:
    """Return ``exp(unary)``, (N, S, L), multiplied by a factor per site.  Messages do not depend on the factors.

    On the CPU the largest weight of a site is 1, in double precision.  On a GPU the weights of a site sum to 1.
    """
    if is_tensor(unary):
        return unary.softmax(2)
    return np.exp(cast(unary, "float64") - np.amax(unary, 2)[:, :, None])


def linear_domain(model: Model) -> tuple[Array, Array]:
    """Return the couplings for `pass_linear` and whether each image (N,) can use the linear domain."""
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
    """Return the largest sum (1|N,) of the spreads (1|N, E) at any site (on a GPU, a bound) and its limit."""
    if is_tensor(spread):
        largest = spread.amax(1) * model.indptr.diff().amax() if spread.shape[1] else spread.sum(axis=1)
        return largest, MOST_RANGE if spread.itemsize == 8 else MOST_RANGE_SINGLE
    sums = [np.bincount(model.edges.T.ravel(), np.tile(row, 2)).max(initial=0) for row in spread]
    return np.array(sums), MOST_RANGE
