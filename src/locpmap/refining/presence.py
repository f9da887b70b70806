"""The probability that a label occurs in an image, as a function of its predicted area fraction."""

from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore, namespace
from locpmap.potentials import Potentials

LEAST = 1e-3  # lower bound of the probability
ALWAYS = (0.0, 0.0)  # half and steepness that stand for probability 1
BOUNDS = ((-20.0, 0.0), (0.0, 5.0))  # of log(half), and of the steepness


def presence_of(fractions: Array, half: float, steepness: float) -> Array:
    """Return the probability that each label occurs, given its predicted area fraction, (.., L).

    The odds are ``(fraction / half)^steepness``, so the probability is 1/2 at the fraction ``half``. The label with
    the largest fraction has probability 1, and so have all labels of an image with unknown (NaN) fractions.

    >>> presence_of(np.array([0.9, 0.1, 0.01]), half=0.01, steepness=2.0).round(3).tolist()
    [1.0, 0.99, 0.5]
    """
    odds = (np.maximum(fractions, 1e-12) / half) ** steepness
    largest = np.arange(fractions.shape[-1]) == fractions.argmax(axis=-1)[..., None]
    return np.where(largest | np.isnan(fractions), 1.0, np.maximum(odds / (1 + odds), LEAST))


def predicted_fractions(potentials: Potentials, marginals: Any) -> Array:
    """Return the predicted area fractions: the mean softmax of the unaries over unmasked sites, (N, L).

    ``marginals`` is that softmax, (N, S, L). Images with scores of -inf, where a site could lose all its labels, have
    fractions of NaN.
    """
    masked, xp, found = potentials.masked, namespace(marginals), []
    for n, (scores, rows) in enumerate(zip(potentials.unary, marginals, strict=True)):
        counted = slice(None) if masked is None else ~masked[n if len(masked) > 1 else 0]
        fractions = rows[counted].mean(0, dtype=xp.float64)
        if potentials.forbids_labels:
            fractions = xp.where(scores[counted].min() > -np.inf, fractions, np.nan)
        found.append(fractions)
    return Restore()(xp.stack(found))  # one transfer for all images


def fit_presence(fractions: Array, present: Array) -> tuple[float, float]:
    """Fit half and steepness by logistic regression of presence on the logarithm of the area fraction.

    Args:
        fractions: Predicted area fraction of each label, of any shape.
        present: Whether the label occurs, of the same shape.

    >>> fit_presence(np.array([0.2, 0.3]), np.array([True, True]))  # all labels occur in all images
    (0.0, 0.0)
    """
    from scipy.optimize import minimize

    if present.all():
        return ALWAYS
    x, sign = np.log(np.maximum(fractions, 1e-12)), np.where(present, 1.0, -1.0)

    def loss(found: Array) -> float:
        return float(np.logaddexp(0, -sign * found[1] * (x - found[0])).mean())

    log_half, steepness = minimize(loss, [np.log(0.01), 1.0], method="L-BFGS-B", bounds=BOUNDS).x
    return float(np.exp(log_half)), float(steepness)
