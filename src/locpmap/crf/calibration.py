"""Calibration of LocPMAP's probabilities by a noise temperature and a scale of the unary scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = 8.0  # both factors are between 1/8 and 8


@dataclass(frozen=True)
class Calibration:
    """Result of :meth:`locpmap.CRF.calibrate`.

    Attributes:
        temperature (float): Factor of LocPMAP's noise.
        scale (float): Factor of the unary scores.
        before (float or None): Negative log-likelihood per held-out site with both factors 1. None if the model was not
            calibrated.
        after (float or None): Negative log-likelihood per held-out site with the fitted factors; never above
            ``before``.
    """

    temperature: float = 1.0
    scale: float = 1.0
    before: float | None = None
    after: float | None = None


def calibrate(
    loss: Callable[[float, float], float], max_evaluations: int, progress: Callable[[int, int, float], None] | None
) -> Calibration:
    """Minimise ``loss(temperature, scale)`` by Nelder-Mead on a logarithmic scale; never worse than (1, 1)."""
    from scipy.optimize import minimize

    bound = np.log(LARGEST)
    done = 0

    def evaluate(x: npt.NDArray[Any]) -> float:
        nonlocal done
        value = loss(*(float(factor) for factor in np.exp(np.clip(x, -bound, bound))))
        done += 1
        if progress is not None:
            progress(done, max_evaluations, value)
        return value

    before = evaluate(np.zeros(2))
    simplex = [[0.0, 0.0], [0.4, 0.0], [0.0, -0.4]]
    options = {"initial_simplex": simplex, "maxfev": max_evaluations, "xatol": 0.01, "fatol": 1e-6}
    end = minimize(evaluate, np.zeros(2), method="Nelder-Mead", options=options)
    if not end.fun < before:
        return Calibration(before=before, after=before)
    temperature, scale = (float(x) for x in np.exp(np.clip(end.x, -bound, bound)))
    return Calibration(temperature, scale, before, float(end.fun))
