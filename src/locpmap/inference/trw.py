"""Tree-reweighted belief propagation: approximate marginals and an upper bound on log Z.

The scores are split among spanning forests that cover the graph.  Reweighted messages minimise the mean log Z of the
forests (Wainwright, Jaakkola & Willsky 2005).  At the end this mean is computed exactly, forest by forest.  It is
therefore an upper bound even if the messages have not converged.  In the same way, the mean of the forests' best scores
is an upper bound on the best score.
"""

from dataclasses import dataclass
from typing import ClassVar

from locpmap.errors import whole_number
from locpmap.inference.decoder import Outcome, Problem
from locpmap.inference.message_passing import SumProduct
from locpmap.kernels.spec import Messages
from locpmap.result import BoundKind


@dataclass(frozen=True, eq=False)
class TRW(SumProduct):
    """Tree-reweighted belief propagation: approximate marginals and upper bounds on log Z and on the best score.

    The bounds hold even if the messages have not converged.

    Args:
        damping (float, default 0.3): Weight of the old message, as in :class:`LBP`.
        max_sweeps (int, default 200): Number of sweeps after which to stop.
        tolerance (float, default 1e-6): Messages have converged when no log-message changes by more than this.
        n_forests (int, default 8): Number of spanning forests.  More are used if this number cannot cover all edges.
        schedule (str, default "auto"): Order of the messages, as in :class:`LBP`.

    Notes:
        A sweep costs O(E·L) for Potts models and O(E·L²) for others.  The bounds cost about one sweep per forest.

    Example:
        >>> pot = lp.Potentials.grid(np.zeros((3, 3, 2)), 1.0)
        >>> result, exact = lp.infer(pot, lp.TRW()), lp.infer(pot, "exact")
        >>> bool(result.log_partition > exact.log_partition)
        True

    See Also:
        :class:`LBP`, :class:`MeanField`
    """

    name: ClassVar[str] = "trw"
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    n_forests: int = 8
    schedule: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("n_forests", self.n_forests, 1)

    def init(self, problem: Problem) -> Messages:
        return problem.kernels.start_messages(problem.view, self.plan(problem), n_forests=self.n_forests)

    def finish(self, problem: Problem, state: Messages) -> Outcome:
        beliefs, _ = problem.kernels.log_beliefs(problem.view, state)
        values = problem.kernels.forest_log_partitions(problem.view, state)
        outcome = self.outcome(problem, state, beliefs, values.mean(axis=1), BoundKind.UPPER)
        outcome.bound = problem.kernels.forest_log_partitions(problem.view, state, maximise=True).mean(axis=1)
        return outcome
