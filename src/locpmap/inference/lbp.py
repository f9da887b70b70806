"""Loopy belief propagation: sum-product messages until they agree; exact on graphs without cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.passing import Passing, check_options, log_beliefs, make_plan
from locpmap.kernels import Model
from locpmap.result import BoundKind

Array = npt.NDArray[Any]

# The linear domain is safe while a product of messages at one site stays above exp(-this).
MOST_RANGE = 300.0
# Tables that differ from edge to edge are expanded for it up to this many labels: at most 4 times the messages' memory.
MOST_LABELS = 8


@dataclass
class _State:
    passing: Passing
    linear: Array  # (N,) images whose messages are kept without logarithms
    weights: Array  # (N, S, L) exp(unary - max unary)
    couplings: Array  # (1|N, 1|E, ..) see `pass_linear`


@dataclass(frozen=True, eq=False)
class LBP(Decoder):
    """Beliefs from sum-product messages, and the Bethe approximation of log Z.

    A sweep costs O(E·L) for Potts models and O(E·L²) for others; memory is 8 bytes times (2E + S)·L per image.

    Args:
        damping: Share of the old message in the new, 0 to 0.99; raise it where messages oscillate.  Used from the tenth
            sweep on, and only where the graph has cycles.
        max_sweeps: Sweeps after which to stop.
        tolerance: Converged when no logarithm of a message moves by more than this.
        schedule: "coloured" (colour classes in turn, threads share them), "sequential" (breadth-first from the leaves
            to the root and back; threads share only images) or "auto": sequential where there is no cycle.
    """

    name: ClassVar[str] = "lbp"
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    schedule: str = "auto"

    def __post_init__(self) -> None:
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> _State:
        passing = Passing.start(problem, make_plan(problem, self.schedule, self.damping, self.tolerance))
        couplings, linear = linear_domain(problem.model)
        unary = problem.potentials.unary
        weights = np.zeros((0, 0, 0))
        if linear.any():
            weights = np.exp(np.subtract(unary, unary.max(axis=2, keepdims=True), dtype=np.float64))
            passing.messages[linear] = 1.0
        return _State(passing, linear, weights, couplings)

    def step(self, problem: Problem, state: _State) -> Step:
        passing = state.passing
        how = (passing.damping, passing.plan.tolerance)
        if state.linear.any():
            passing.sweep(problem, problem.kernels.pass_linear, state.linear, state.weights, state.couplings, *how)
        if not state.linear.all():
            rho = np.ones(len(problem.model.edges))
            passing.sweep(problem, problem.kernels.pass_messages, state.linear, rho, False, *how)
        passing.sweeps += 1
        return Step(passing.sweeps, self.max_sweeps, passing.converged)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        messages = state.passing.messages
        for n in np.flatnonzero(state.linear):
            np.log(messages[n], out=messages[n])
        beliefs, site_terms = log_beliefs(problem, messages, np.ones(len(problem.model.edges)))
        edge_terms = np.zeros_like(site_terms)
        problem.sweep(problem.kernels.bethe_edges, messages, beliefs, edge_terms)
        probability = np.exp(beliefs, out=beliefs).astype(problem.potentials.unary.dtype, copy=False)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            n_sweeps=state.passing.sweeps,
            log_partition=site_terms.sum(axis=1) + edge_terms.sum(axis=1),
            log_partition_kind=BoundKind.BETHE,
        )


def linear_domain(model: Model) -> tuple[Array, Array]:
    """The tables as `pass_linear` wants them, and which images (N,) are safe there."""
    n_images, _, n_labels = model.unary.shape
    if model.potts:
        weights = model.features[:, :, 0]
        couplings = np.exp(np.stack([np.minimum(-weights, 0), np.minimum(weights, 0)], axis=2))[:, :, None]
        spread = np.abs(weights)
    elif max(model.features.shape[1], model.tables.shape[1]) == 1 or n_labels <= MOST_LABELS:
        n_features = model.features.shape[2]
        tables = sum(model.features[:, :, f, None, None] * model.tables[:, :, f] for f in range(n_features))
        top = tables.max(axis=(2, 3), keepdims=True, initial=np.finfo(np.float64).min)
        spread = (top - tables.min(axis=(2, 3), keepdims=True))[:, :, 0, 0]
        couplings = np.exp(tables - top)
    else:
        return np.zeros((1, 1, 1, 1)), np.zeros(n_images, bool)
    spread = np.broadcast_to(spread, (len(spread), len(model.edges)))
    largest = [np.bincount(model.edges.T.ravel(), np.tile(row, 2)).max(initial=0) for row in spread]
    return couplings, np.repeat(np.array(largest) <= MOST_RANGE, n_images // len(largest))
