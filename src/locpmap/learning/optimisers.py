"""Minimisation in scaled coordinates: L-BFGS-B, and stochastic descent by Adam with a schedule that needs no tuning.

Steps of the descent are taken in scaled coordinates (`Dataset.scales`), so one learning rate suits all features. Every
15 steps, the average of the iterates since the last check is evaluated on held-out data. When the held-out loss stops
improving, descent continues from the best point with about a third of the rate. It ends after the last rate and returns
the best point. The random numbers of a step depend on (seed, step) only, so an interrupted descent resumes with the
same result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.learning.result import FitStatus

RATES = (0.05, 0.015, 0.005)
PATIENCE = 3  # checks without a better held-out value before the rate decreases
STEPS_PER_CHECK = 15
DECAY, DECAY_SQUARES = 0.9, 0.98
VECTORS = ("point", "best", "average", "momentum", "squares")


def minimise(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    scales: Array,
    lowest: Array,
    max_iterations: int,
    tolerance: float,
    after: Callable[[Array, float], None],
) -> tuple[Array, float, float, FitStatus]:
    """Minimise a smooth function from ``start`` by L-BFGS-B in the coordinates ``w · scales``, scales being (P,).

    ``lowest`` (P,) are lower bounds, 0 or -inf, so that they are the same in both coordinates.
    Call ``after(point, value)`` after every iteration.  Return the point, its value, the largest entry of its projected
    gradient in scaled coordinates, and the status.
    """
    from scipy.optimize import Bounds, minimize

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
    how: dict[str, Any] = {"bounds": Bounds(lowest), "callback": report, "options": options}
    end = minimize(scaled, start * scales, jac=True, method="L-BFGS-B", **how)
    norm = projected(end.x, end.jac, lowest)
    if norm <= tolerance:
        status = FitStatus.CONVERGED
    else:
        status = FitStatus.MAX_ITERATIONS if end.nit >= max_iterations else FitStatus.NO_PROGRESS
    return end.x / scales, float(end.fun), norm, status


def projected(v: Array, gradient: Array, lowest: Array) -> float:
    """Return the largest absolute entry of the gradient, ignoring entries that point out of the bounds."""
    return float(np.abs(np.where((v <= lowest) & (gradient > 0), 0.0, gradient)).max(initial=0.0))


@dataclass
class Descent:
    """The complete state of a descent, from which it can resume."""

    point: Array  # (P,) in scaled coordinates
    best: Array  # (P,) the best point so far
    average: Array  # (P,) mean of the iterates since the last check
    momentum: Array  # (P,) Adam's running mean of gradients
    squares: Array  # (P,) Adam's running mean of squared gradients
    step: int = 0
    warm: int = 0  # steps since momentum was reset
    rate: int = 0  # position in RATES
    stale: int = 0  # checks since the best one
    first_step: int = 0  # step at which the current start was chosen
    held_out: list[float] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, point: Array, held_out: float) -> Self:
        """Return the state before the first step."""
        zero = np.zeros_like(point)
        return cls(point.copy(), point.copy(), zero.copy(), zero.copy(), zero.copy(), held_out=[held_out])

    def restart(self, point: Array, held_out: float) -> None:
        """Restart from another point, which must be better than all so far, at the first rate."""
        self.best, self.rate, self.first_step = point.copy(), 0, self.step
        self.held_out.append(held_out)
        self.reset_to_best()

    def reset_to_best(self) -> None:
        """Return to the best point and reset momentum."""
        self.point, self.stale, self.warm = self.best.copy(), 0, 0
        self.momentum, self.squares = np.zeros_like(self.point), np.zeros_like(self.point)
        self.average = np.zeros_like(self.point)

    @property
    def finished(self) -> bool:
        return self.rate >= len(RATES)

    @property
    def n_left(self) -> int:
        """Steps until the schedule ends if no further check is better than the best one."""
        return STEPS_PER_CHECK * (PATIENCE * (len(RATES) - self.rate) - self.stale)

    def state(self) -> dict[str, Array]:
        """Return the arrays of a checkpoint."""
        counts = np.array([self.step, self.warm, self.rate, self.stale, self.first_step], float)
        vectors = {name: getattr(self, name) for name in VECTORS}
        return {**vectors, "counts": counts, "held_out": np.array(self.held_out), "curve": np.array(self.curve)}

    @classmethod
    def resume(cls, state: dict[str, Array]) -> Self:
        """Return the descent of a checkpoint."""
        step, warm, rate, stale, first_step = (int(count) for count in state["counts"])
        contents: dict[str, Any] = {name: state[name].copy() for name in VECTORS}
        contents |= {name: state[name].tolist() for name in ("held_out", "curve")}
        return cls(**contents, step=step, warm=warm, rate=rate, stale=stale, first_step=first_step)


def descend(
    descent: Descent,
    gradient: Callable[[Array, int], tuple[float, Array]],
    held_out_loss: Callable[[Array], float],
    lowest: Array,
    max_steps: int,
    after_check: Callable[[Descent], None],
) -> None:
    """Descend along a noisy ``gradient(point, step)`` until the schedule ends, or ``max_steps`` from a start."""
    while not descent.finished and descent.step - descent.first_step < max_steps:
        value, by_point = gradient(descent.point, descent.step)
        descent.step += 1
        if not (np.isfinite(value) and np.isfinite(by_point).all()):
            raise InputError(
                f"the objective is {value} in step {descent.step}, expected finite numbers: scale the features"
            )
        descent.warm += 1
        descent.momentum = DECAY * descent.momentum + (1 - DECAY) * by_point
        descent.squares = DECAY_SQUARES * descent.squares + (1 - DECAY_SQUARES) * by_point**2
        mean = descent.momentum / (1 - DECAY**descent.warm)
        spread = np.sqrt(descent.squares / (1 - DECAY_SQUARES**descent.warm))
        move = RATES[descent.rate] * mean / (spread + 1e-12)
        descent.point = np.maximum(descent.point - move, lowest)
        descent.average += descent.point / STEPS_PER_CHECK
        descent.curve.append(value)
        if descent.step % STEPS_PER_CHECK == 0:
            _check(descent, held_out_loss(descent.average))
            after_check(descent)


def _check(descent: Descent, held_out: float) -> None:
    """Store the average if it is the best point so far; after PATIENCE checks without one, decrease the rate."""
    better = held_out < min(descent.held_out)
    descent.held_out.append(held_out)
    if better:
        descent.best, descent.stale = descent.average.copy(), 0
    else:
        descent.stale += 1
    descent.average = np.zeros_like(descent.average)
    if descent.stale == PATIENCE:
        descent.reset_to_best()
        descent.rate += 1
