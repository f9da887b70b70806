"""Stochastic descent whose schedule needs no tuning.

Adam's steps are taken in coordinates without units (`Dataset.scales`), so one rate serves all features.  Every few
steps the average of the iterates since the last check is judged on held-out data.  When that stops improving, descent
goes on from the best point with a third of the rate; after the last rate it ends, and the best point is the result.
Everything a step draws is a function of (seed, step), so an interrupted descent resumes to the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.learning.lbfgs import Bounds

RATES = (0.05, 0.015, 0.005)
PATIENCE = 3  # checks without a better held-out value before the rate falls
STEPS_PER_CHECK = 15
DECAY, DECAY_SQUARES = 0.9, 0.98
VECTORS = ("point", "best", "average", "momentum", "squares")


@dataclass
class Descent:
    """Where a descent stands: all that is needed to go on."""

    point: Array  # (P,) in coordinates without units
    best: Array  # (P,) the best point so far
    average: Array  # (P,) of the iterates since the last check
    momentum: Array  # (P,) Adam's running means of gradients
    squares: Array  # (P,) and of their squares
    step: int = 0
    warm: int = 0  # steps since momentum was reset
    rate: int = 0  # position in RATES
    stale: int = 0  # checks since the best
    first_step: int = 0  # the step at which this run began
    held_out: list[float] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, point: Array, held_out: float) -> Descent:
        """Nothing done yet."""
        zero = np.zeros_like(point)
        return cls(point.copy(), point.copy(), zero.copy(), zero.copy(), zero.copy(), held_out=[held_out])

    def restart(self, point: Array, held_out: float) -> None:
        """Go on from another point, better than all so far, at the first rate."""
        self.best, self.rate, self.first_step = point.copy(), 0, self.step
        self.held_out.append(held_out)
        self.reset_to_best()

    def reset_to_best(self) -> None:
        """Stand still at the best point."""
        self.point, self.stale, self.warm = self.best.copy(), 0, 0
        self.momentum, self.squares = np.zeros_like(self.point), np.zeros_like(self.point)
        self.average = np.zeros_like(self.point)

    @property
    def finished(self) -> bool:
        """Whether the last rate is used up."""
        return self.rate >= len(RATES)

    def state(self) -> dict[str, Array]:
        """For a checkpoint."""
        counts = np.array([self.step, self.warm, self.rate, self.stale, self.first_step], float)
        vectors = {name: getattr(self, name) for name in VECTORS}
        return {**vectors, "counts": counts, "held_out": np.array(self.held_out), "curve": np.array(self.curve)}

    @classmethod
    def resume(cls, state: dict[str, Array]) -> Descent:
        """From a checkpoint."""
        step, warm, rate, stale, first_step = (int(count) for count in state["counts"])
        contents: dict[str, Any] = {name: state[name].copy() for name in VECTORS}
        contents |= {name: state[name].tolist() for name in ("held_out", "curve")}
        return cls(**contents, step=step, warm=warm, rate=rate, stale=stale, first_step=first_step)


def descend(
    descent: Descent,
    gradient: Callable[[Array, int], tuple[float, Array]],
    held_out_loss: Callable[[Array], float],
    bounds: Bounds,
    max_steps: int,
    after_check: Callable[[Descent], None],
) -> None:
    """Go on until the last rate is used up or ``max_steps`` is reached.

    ``gradient(point, step)`` gives a noisy value and gradient, ``held_out_loss(point)`` the held-out value.
    """
    low = np.array([-np.inf if bounds is None or bound[0] is None else bound[0] for bound in bounds or descent.point])
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
        descent.point = np.maximum(descent.point - move, low)
        descent.average += descent.point / STEPS_PER_CHECK
        descent.curve.append(value)
        if descent.step % STEPS_PER_CHECK == 0:
            _check(descent, held_out_loss(descent.average))
            after_check(descent)


def _check(descent: Descent, held_out: float) -> None:
    """Keep the average if it is the best so far; otherwise, after some patience, go back and slow down."""
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
