"""Whether a label is in an image at all, by how much of it the scores see there."""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.potentials import Potentials
from locpmap.refining.scoring import softmax

LEAST = 1e-3  # labels that are less likely to be there are as likely as this
ALWAYS = (0.0, 0.0)
BOUNDS = ((-20.0, 0.0), (0.0, 5.0))  # of the logarithm of the half, and of the steepness


def presence_of(shares: Array, half: float, steepness: float) -> Array:
    """How likely labels with these shares of an image, (.., L), are to be there: odds of ``(share / half)^steepness``.

    The label with the largest share is taken to be there.

    >>> presence_of(np.array([0.9, 0.1, 0.01]), half=0.01, steepness=2.0).round(3).tolist()
    [1.0, 0.99, 0.5]
    """
    odds = (np.maximum(shares, 1e-12) / half) ** steepness
    found = np.maximum(odds / (1 + odds), LEAST)
    np.put_along_axis(found, shares.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return found


def shares_of(potentials: Potentials) -> Array | None:
    """The mean softmax of the scores over the sites that are not masked, (N, L); None where scores forbid labels."""
    unary = Restore()(potentials.unary)
    masked = None if potentials.masked is None else np.broadcast_to(Restore()(potentials.masked), unary.shape[:2])
    rows = [scores if masked is None else scores[~masked[n]] for n, scores in enumerate(unary)]
    if any(np.isneginf(scores).any() for scores in rows):
        return None
    return np.stack([softmax(scores).mean(axis=0, dtype=np.float64) for scores in rows])


def fit_presence(shares: Array, there: Array) -> tuple[float, float]:
    """Half and steepness that make it likeliest which labels were there, by logistic regression on the logarithm.

    Args:
        shares: What the scores saw of each label, of any shape.
        there: Whether it was there, of the same shape.

    >>> fit_presence(np.array([0.2, 0.3]), np.array([True, True]))  # no label was ever missing
    (0.0, 0.0)
    """
    from scipy.optimize import minimize

    if there.all():
        return ALWAYS
    x, sign = np.log(np.maximum(shares, 1e-12)), np.where(there, 1.0, -1.0)

    def loss(found: Array) -> float:
        return float(np.logaddexp(0, -sign * found[1] * (x - found[0])).mean())

    log_half, steepness = minimize(loss, [np.log(0.01), 1.0], method="L-BFGS-B", bounds=BOUNDS).x
    return float(np.exp(log_half)), float(steepness)
