"""The result of a fit."""

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array


class FitStatus(enum.Enum):
    """Reason why a fit ended; the value of each member is a text for messages and logs."""

    CONVERGED = "converged: the gradient is nearly zero"
    NO_PROGRESS = "the objective stopped improving within rounding"
    MAX_ITERATIONS = "reached max_iterations"
    HELD_OUT = "the held-out likelihood stopped improving"
    NO_GAIN = "no step improved on the start on held-out data, so the start was returned"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of :meth:`locpmap.CRF.fit`.

    Attributes:
        objective (str): Name of the objective.
        status (FitStatus): Reason why the fit ended.
        value (float): Final loss per labelled site: the negative log conditional likelihood plus the penalty. With
            blocks "rows+columns" it is the sum over both families of blocks. For mini-batches it is a mean over the
            last 15 steps. "contrastive" has no loss; here and in ``curve`` it reports the largest absolute entry of
            the gradient, in scaled coordinates.
        curve (array): Loss after each iteration of L-BFGS, (n_iterations + 1,), with the loss at the start first. For
            mini-batches, the loss of each step without the penalty, (n_iterations,).
        gradient_norm (float): Largest absolute entry of the projected gradient in scaled coordinates. For mini-batches,
            of the running mean of gradients.
        n_iterations (int): Number of iterations of L-BFGS, or of steps on mini-batches.
        n_sites (int): Number of labelled training sites.
        n_images (int): Number of training inputs with labels.
        seconds (float): Duration of the optimisation.
        w (array): Fitted parameter vector (P,).
        names (list of str): Names of the P entries of ``w``.
        standard_errors (array or None): Standard errors (P,) of ``w`` by Godambe's sandwich estimator over images. They
            allow for the dependence between sites of one image. None if they were not requested, or for fewer than 10
            inputs, more than 256 weights, or mini-batches.
        held_out (array or None): Held-out negative log-likelihood per site at each check, with the value at the start
            first. A restarted fit includes the value at the second start. None for L-BFGS.

    See Also:
        :class:`FitStatus`, :class:`FitOptions`.
    """

    objective: str
    status: FitStatus
    value: float
    curve: Array
    gradient_norm: float
    n_iterations: int
    n_sites: int
    n_images: int
    seconds: float
    w: Array
    names: list[str]
    standard_errors: Array | None = None
    held_out: Array | None = None

    @property
    def converged(self) -> bool:
        """Whether the fit ended before its limit: False if ``status`` is MAX_ITERATIONS."""
        return self.status is not FitStatus.MAX_ITERATIONS

    @property
    def gain(self) -> float | None:
        """Decrease of the held-out negative log-likelihood to its minimum; None without held-out data."""
        return None if self.held_out is None else float(self.held_out[0] - np.min(self.held_out))

    def summary(self) -> dict[str, Any]:
        """Return the main fields as a dictionary of plain numbers and strings, for a model file or a log."""
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
