"""What a fit reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array


class FitStatus(enum.Enum):
    """Why a fit ended; the value is the sentence for people."""

    CONVERGED = "the gradient vanished"
    NO_PROGRESS = "the objective stopped improving within rounding"
    MAX_ITERATIONS = "reached max_iterations"
    HELD_OUT = "the held-out likelihood stopped improving"
    NO_GAIN = "nothing improved on the start on held-out data, so the start was kept"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class FitResult:
    """The end of a fit.

    ``value`` is the negative log conditional likelihood per labelled site (for rows and columns, of both families of
    blocks), with the penalty.
    ``standard_errors`` are of the flat weights (`names` says which is which): Godambe's sandwich over images, valid
    though sites of an image depend on one another; None where they were not asked for or there are too few images.
    """

    objective: str
    status: FitStatus
    value: float
    curve: Array  # (n_iterations + 1,) value after each iteration, the start first
    gradient_norm: float  # the largest entry of the (projected) gradient
    n_iterations: int
    n_sites: int  # labelled sites
    n_images: int
    seconds: float
    w: Array  # (P,)
    names: list[str]
    standard_errors: Array | None = None  # (P,)
    held_out: Array | None = None  # held-out negative log-likelihood at each check, the start first

    @property
    def converged(self) -> bool:
        """Whether the fit ended for a good reason rather than for lack of iterations."""
        return self.status is not FitStatus.MAX_ITERATIONS

    @property
    def gain(self) -> float | None:
        """By how much the held-out negative log-likelihood fell from the start; never negative."""
        return None if self.held_out is None else float(self.held_out[0] - np.min(self.held_out))

    def summary(self) -> dict[str, Any]:
        """Plain numbers for a model file or a log."""
        plain: dict[str, Any] = {
            "objective": self.objective,
            "status": self.status.value,
            "value": self.value,
            "gradient_norm": self.gradient_norm,
            "n_iterations": self.n_iterations,
            "n_sites": self.n_sites,
            "n_images": self.n_images,
            "seconds": round(self.seconds, 3),
        }
        return plain if self.gain is None else {**plain, "gain": self.gain}

    def __repr__(self) -> str:
        return f"FitResult({self.objective}: {self.status}; value {self.value:.5f}, {self.n_iterations} iterations)"
