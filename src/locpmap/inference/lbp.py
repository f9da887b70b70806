"""Loopy belief propagation: sum-product messages until they agree; exact on graphs without cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from locpmap.arrays import cast, dtype_beside, namespace
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.message_options import check_options, send, status_of
from locpmap.kernels.spec import Messages
from locpmap.result import BoundKind


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
    unbounded: ClassVar[str] = "its messages stop when those of the whole raster have converged"
    on_gpu: ClassVar[bool] = True
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    schedule: str = "auto"

    def __post_init__(self) -> None:
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> Messages:
        plan = problem.kernels.plan_messages(problem.view, self.schedule, self.damping, self.tolerance)
        return problem.kernels.start_messages(problem.view, plan)

    def step(self, problem: Problem, state: Messages) -> Step:
        return send(problem, state, self.max_sweeps)

    def finish(self, problem: Problem, state: Messages) -> Outcome:
        beliefs, terms = problem.kernels.log_beliefs(problem.view, state)
        terms += problem.kernels.bethe_edges(problem.view, state, beliefs)
        probability = cast(namespace(beliefs).exp(beliefs, out=beliefs), problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            log_partition=terms.sum(axis=1, dtype=dtype_beside(terms, "float64")),
            log_partition_kind=BoundKind.BETHE,
            n_sweeps=state.sweeps,  # last: on a GPU this waits for all that was launched before
            status=status_of(state),
        )
