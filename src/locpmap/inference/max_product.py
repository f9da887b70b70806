"""Max-product: messages of max-marginals, and the best labelling decoded from them; exact without cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from locpmap.inference.best import Best
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.passing import Passing, check_options, make_plan, parents_first, plain
from locpmap.kernels.threads import ranges

Array = npt.NDArray[Any]

SWEEPS_PER_DECODING = 10


@dataclass
class _State:
    passing: Passing
    decode_order: Array  # (S,) parents before children
    nowhere: Array  # (N,) False: no image is kept in the linear domain
    best: Best


@dataclass(frozen=True, eq=False)
class MaxProduct(Decoder):
    """One labelling from max-product messages: the best of those decoded every tenth sweep and at the end.

    A sweep costs O(E·L) for Potts models and O(E·L²) for others; memory is 8 bytes times 2E·L per image.

    Args:
        damping: Share of the old message in the new, 0 to 0.99; raise it where messages oscillate.  Used from the tenth
            sweep on, and only where the graph has cycles.
        max_sweeps: Sweeps after which to stop.
        tolerance: Converged when no message moves by more than this.
        schedule: "coloured" (colour classes in turn, threads share them), "sequential" (breadth-first from the leaves
            to the root and back; threads share only images) or "auto": sequential where there is no cycle.
    """

    name: ClassVar[str] = "max_product"
    on_gpu: ClassVar[bool] = True
    damping: float = 0.3
    max_sweeps: int = 100
    tolerance: float = 1e-6
    schedule: str = "auto"

    def __post_init__(self) -> None:
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> _State:
        passing = Passing.start(problem, make_plan(problem, self.schedule, self.damping, self.tolerance))
        nowhere = problem.zeros((problem.potentials.n_images,), "bool")
        return _State(passing, parents_first(problem), nowhere, Best.start(problem))

    def step(self, problem: Problem, state: _State) -> Step:
        passing = state.passing
        most = min(self.max_sweeps - passing.sweeps, SWEEPS_PER_DECODING - passing.sweeps % SWEEPS_PER_DECODING)
        passing.advance(problem, most, (problem.kernels.pass_messages, state.nowhere, plain(problem), True))
        if passing.sweeps % SWEEPS_PER_DECODING == 0:
            self._decode(problem, state)
        return Step(passing.sweeps, self.max_sweeps, passing.converged)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        self._decode(problem, state)
        return Outcome(state.best.labels, n_sweeps=state.passing.sweeps)

    def _decode(self, problem: Problem, state: _State) -> None:
        labels = problem.empty(tuple(problem.potentials.unary.shape[:2]), "int64")
        common = (problem.model, state.decode_order, state.passing.messages, labels)
        images = ranges(len(labels), problem.threads.n_threads)
        problem.threads.map(problem.kernels.decode_messages, [(*common, lo, hi) for lo, hi in images])
        state.best.offer(problem, labels)
