"""L-BFGS-B in scaled coordinates."""

from collections.abc import Callable
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.learning.result import FitStatus

Bounds = list[tuple[float | None, float | None]] | None


def minimise(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    scales: Array,
    bounds: Bounds,
    max_iterations: int,
    tolerance: float,
    after: Callable[[Array, float], None],
) -> tuple[Array, float, float, FitStatus]:
    """Minimise a smooth function from ``start`` by L-BFGS-B in the coordinates ``w · scales``, scales being (P,).

    Call ``after(point, value)`` after every iteration.  Return the point, its value, the largest entry of its projected
    gradient in scaled coordinates, and the status.
    """
    from scipy.optimize import minimize

    evaluations = 0

    def scaled(v: Array) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        value, gradient = function(v / scales)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise InputError(
                f"the objective is {value} in evaluation {evaluations}, expected finite numbers: scale the features"
            )
        return value, gradient / scales

    def report(intermediate_result: Any) -> None:
        after(intermediate_result.x / scales, float(intermediate_result.fun))

    options = {"maxiter": max_iterations, "gtol": tolerance, "ftol": 1e-14, "maxcor": 20, "maxfun": 20 * max_iterations}
    end = minimize(scaled, start * scales, jac=True, method="L-BFGS-B", bounds=bounds, callback=report, options=options)
    norm = _projected(end.x, end.jac, bounds)
    if norm <= tolerance:
        status = FitStatus.CONVERGED
    else:
        status = FitStatus.MAX_ITERATIONS if end.nit >= max_iterations else FitStatus.NO_PROGRESS
    return end.x / scales, float(end.fun), norm, status


def _projected(v: Array, gradient: Array, bounds: Bounds) -> float:
    """Return the largest absolute entry of the gradient, ignoring entries that point out of the bounds."""
    if bounds is not None:
        lowest = np.array([-np.inf if low is None else low for low, _ in bounds])
        gradient = np.where((v <= lowest) & (gradient > 0), 0.0, gradient)
    return float(np.abs(gradient).max(initial=0.0))
