"""Max-product belief propagation: max-marginals as messages, and a labelling decoded from them."""

from dataclasses import dataclass
from typing import ClassVar

from locpmap.inference.decoder import Incumbent, Outcome, Problem, Step
from locpmap.inference.message_passing import MessagePassing
from locpmap.kernels.spec import Messages

SWEEPS_PER_DECODING = 10


@dataclass
class _State:
    messages: Messages
    incumbent: Incumbent


@dataclass(frozen=True, eq=False)
class MaxProduct(MessagePassing):
    """Max-product belief propagation: the best labelling decoded from max-product messages.

    A labelling is decoded every tenth sweep and at the end; the one with the highest score is returned.  It is the MAP
    on graphs without cycles.

    Args:
        damping (float, default 0.3): Weight of the old message, as in :class:`LBP`.
        max_sweeps (int, default 100): Number of sweeps after which to stop.
        tolerance (float, default 1e-6): Messages have converged when none changes by more than this.
        schedule (str, default "auto"): Order of the messages, as in :class:`LBP`.

    Notes:
        A sweep costs O(E·L) for Potts models and O(E·L²) for others.  Memory is 8 bytes times 2E·L per image.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> lp.infer(pot, lp.MaxProduct()).labels
        array([[1, 1, 1]])

    See Also:
        :class:`GraphCut`, :class:`LBP`, :class:`PerturbAndMaxProduct`
    """

    name: ClassVar[str] = "max_product"
    has_probability: ClassVar[bool] = False
    damping: float = 0.3
    max_sweeps: int = 100
    tolerance: float = 1e-6
    schedule: str = "auto"

    def init(self, problem: Problem) -> _State:
        messages = problem.kernels.start_messages(problem.view, self.plan(problem), maximise=True)
        return _State(messages, Incumbent.start(problem))

    def step(self, problem: Problem, state: _State) -> Step:
        messages = state.messages
        left = min(self.max_sweeps - messages.sweeps, SWEEPS_PER_DECODING - messages.sweeps % SWEEPS_PER_DECODING)
        problem.kernels.send(problem.view, messages, min(left, problem.sweeps_per_step))
        if messages.sweeps % SWEEPS_PER_DECODING == 0:
            self._decode(problem, state)
        return Step(messages.sweeps, self.max_sweeps, messages.converged)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        self._decode(problem, state)
        return Outcome(state.incumbent.labels, n_sweeps=state.messages.sweeps)

    def _decode(self, problem: Problem, state: _State) -> None:
        state.incumbent.update(problem, problem.kernels.decode_messages(problem.view, state.messages))
