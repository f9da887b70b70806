"""Tree-reweighted belief propagation: beliefs, and an upper bound on log Z that holds whenever it is read.

The graph's edges are shared out among spanning forests; reweighted messages look for the split of the scores whose
mean log Z over the forests is least (Wainwright, Jaakkola & Willsky 2005).  At the end that mean is computed forest by
forest, exactly, so it is a bound for the messages as they are, converged or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from locpmap.arrays import cast, namespace
from locpmap.errors import whole_number
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.message_options import check_options, send, status_of
from locpmap.kernels.spec import Messages
from locpmap.result import BoundKind


@dataclass(frozen=True, eq=False)
class TRW(Decoder):
    """Beliefs from tree-reweighted sum-product messages, and an upper bound on log Z.

    A sweep costs O(E·L) for Potts models and O(E·L²) for others, the bound about half a sweep per forest.

    Args:
        damping: As in :class:`LBP`.
        max_sweeps: Sweeps after which to stop.
        tolerance: Converged when no logarithm of a message moves by more than this.
        n_forests: Spanning forests that share the edges; more where that many cannot hold every edge.
        schedule: As in :class:`LBP`.
    """

    name: ClassVar[str] = "trw"
    unbounded: ClassVar[str] = "its messages stop when those of the whole raster have converged"
    on_gpu: ClassVar[bool] = True
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    n_forests: int = 8
    schedule: str = "auto"

    def __post_init__(self) -> None:
        whole_number("n_forests", self.n_forests, 1)
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> Messages:
        plan = problem.kernels.plan_messages(problem.view, self.schedule, self.damping, self.tolerance)
        return problem.kernels.start_messages(problem.view, plan, n_forests=self.n_forests)

    def step(self, problem: Problem, state: Messages) -> Step:
        return send(problem, state, self.max_sweeps)

    def finish(self, problem: Problem, state: Messages) -> Outcome:
        beliefs, _ = problem.kernels.log_beliefs(problem.view, state)
        values = problem.kernels.forest_log_partitions(problem.view, state)
        probability = cast(namespace(beliefs).exp(beliefs, out=beliefs), problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            log_partition=values.mean(axis=1),
            log_partition_kind=BoundKind.UPPER,
            n_sweeps=state.sweeps,  # last: on a GPU this waits for all that was launched before
            status=status_of(state),
        )
