"""Tree-reweighted belief propagation: beliefs, and an upper bound on log Z that holds whenever it is read.

The graph's edges are shared out among spanning forests; reweighted messages look for the split of the scores whose
mean log Z over the forests is least (Wainwright, Jaakkola & Willsky 2005).  At the end that mean is computed forest by
forest, exactly, so it is a bound for the messages as they are, converged or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from locpmap.arrays import cast, namespace
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step, at_least
from locpmap.inference.passing import Passing, check_options, log_beliefs, make_plan
from locpmap.inference.trees import shared_out, spanning_forests
from locpmap.kernels.threads import ranges
from locpmap.result import BoundKind

Array = npt.NDArray[Any]


@dataclass
class _State:
    passing: Passing
    rho: Array  # (E,) share of the forests that hold an edge
    orders: Array  # (K, S)
    parents: Array  # (K, S)
    nowhere: Array  # (N,) False: no image is kept in the linear domain


@dataclass(frozen=True, eq=False)
class TRW(Decoder):
    """Beliefs from tree-reweighted sum-product messages, and an upper bound on log Z.

    A sweep costs O(E·L) for Potts models and O(E·L²) for others, the bound about half a sweep per forest.

    Args:
        damping: Share of the old message in the new, 0 to 0.99; used from the tenth sweep on, and only where the graph
            has cycles.
        max_sweeps: Sweeps after which to stop.
        tolerance: Converged when no logarithm of a message moves by more than this.
        n_forests: Spanning forests that share the edges; more where that many cannot hold every edge.
        schedule: "coloured" (colour classes in turn, threads share them), "sequential" (breadth-first from the leaves
            to the root and back; threads share only images) or "auto": sequential where there is no cycle.
    """

    name: ClassVar[str] = "trw"
    on_gpu: ClassVar[bool] = True
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    n_forests: int = 8
    schedule: str = "auto"

    def __post_init__(self) -> None:
        at_least("n_forests", self.n_forests, 1)
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> _State:
        passing = Passing.start(problem, make_plan(problem, self.schedule, self.damping, self.tolerance))
        unary = problem.potentials.unary
        if problem.kernels.device:
            given = shared_out(problem.potentials.structure, self.n_forests, str(unary.device))
            orders, parents, rho = given[0], given[1], cast(given[2], passing.messages.dtype)
        else:
            forests, rho = spanning_forests(problem.model, self.n_forests)
            orders, parents = (np.stack(arrays) for arrays in zip(*forests, strict=True))
        return _State(passing, rho, orders, parents, problem.zeros((len(unary),), "bool"))

    def step(self, problem: Problem, state: _State) -> Step:
        passing = state.passing
        most = self.max_sweeps - passing.sweeps
        passing.advance(problem, most, (problem.kernels.pass_messages, state.nowhere, state.rho, False))
        return passing.step(self.max_sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        messages = state.passing.messages
        beliefs, _ = log_beliefs(problem, messages, state.rho)
        n_images, n_forests = len(messages), len(state.orders)
        values = problem.empty((n_images, n_forests), "float64")
        common = (problem.model, messages, state.rho, state.orders, state.parents, values)
        if problem.kernels.device:
            jobs = [(*common, 0, n_images, 0, n_forests)]
        else:
            parts = ranges(n_images, problem.threads.n_threads)
            jobs = [(*common, lo, hi, t, t + 1) for lo, hi in parts for t in range(n_forests)]
        problem.threads.map(problem.kernels.forest_log_partitions, jobs)
        probability = cast(namespace(beliefs).exp(beliefs, out=beliefs), problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            log_partition=values.mean(axis=1),
            log_partition_kind=BoundKind.UPPER,
            n_sweeps=state.passing.sweeps,  # last: on a GPU this waits for all that was launched before
            status=state.passing.status,
        )
