"""Loopy belief propagation: sum-product messages, passed until they converge."""

from dataclasses import dataclass
from typing import ClassVar

from locpmap.arrays import dtype_like
from locpmap.inference.decoder import Outcome, Problem
from locpmap.inference.message_passing import SumProduct
from locpmap.kernels.spec import Messages
from locpmap.result import BoundKind


@dataclass(frozen=True, eq=False)
class LBP(SumProduct):
    """Loopy belief propagation: approximate marginals and the Bethe approximation of log Z.

    Both are exact on graphs without cycles.

    Args:
        damping (float, default 0.3): Weight of the old message in the new one, from 0 to 0.99.  Raise it if messages
            oscillate.  It applies from the eleventh sweep on, and only if the graph has cycles.
        max_sweeps (int, default 200): Number of sweeps after which to stop.
        tolerance (float, default 1e-6): Messages have converged when no log-message changes by more than this.
        schedule (str, default "auto"): Order of the messages.  "coloured" updates one colour class after the other, in
            parallel within a class.  "sequential" passes messages breadth-first from the leaves to the root and back,
            in parallel only over images.  "auto" is sequential on graphs without cycles, otherwise coloured.

    Notes:
        With S sites, E edges and L labels, a sweep costs O(E·L) for Potts models and O(E·L²) for others.  Memory is 8
        bytes times (2E + S)·L per image.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result, exact = lp.infer(pot, lp.LBP()), lp.infer(pot, "exact")
        >>> bool(np.allclose(result.probability, exact.probability))  # the grid is a chain
        True

    See Also:
        :class:`TRW`, :class:`MeanField`, :class:`MaxProduct`
    """

    name: ClassVar[str] = "lbp"
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    schedule: str = "auto"

    def init(self, problem: Problem) -> Messages:
        return problem.kernels.start_messages(problem.view, self.plan(problem))

    def finish(self, problem: Problem, state: Messages) -> Outcome:
        beliefs, terms = problem.kernels.log_beliefs(problem.view, state)
        terms += problem.kernels.bethe_edges(problem.view, state, beliefs)
        total = terms.sum(axis=1, dtype=dtype_like(terms, "float64"))
        return self.outcome(problem, state, beliefs, total, BoundKind.BETHE)
