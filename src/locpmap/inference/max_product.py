"""Max-product belief propagation: max-marginals as messages, and a labelling decoded from them."""

from dataclasses import dataclass
from typing import ClassVar

from locpmap.arrays import namespace
from locpmap.errors import whole_number
from locpmap.inference.decoder import Incumbent, Outcome, Problem, Step
from locpmap.inference.message_passing import MessagePassing
from locpmap.kernels.spec import Messages
from locpmap.result import Status

SWEEPS_PER_DECODING = 10


@dataclass
class _State:
    messages: Messages
    incumbent: Incumbent
    reweighted: Messages | None  # for the bound


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
        n_forests (int, default 0): Number of spanning forests of ``result.bound``, an upper bound on the score of every
            labelling; 0 for no bound.  As many more sweeps of tree-reweighted messages minimise it.

    Notes:
        A sweep costs O(E·L) for Potts models and O(E·L²) for others.  Memory is 8 bytes times 2E·L per image.

        Whether the bound reaches the best score depends on the model: it often does for attractive couplings, and
        rarely for strong couplings of random sign.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> lp.infer(pot, lp.MaxProduct()).labels
        array([[1, 1, 1]])
        >>> result = lp.infer(pot, lp.MaxProduct(n_forests=1))
        >>> result.score, result.bound
        (6.0, 6.0)

    See Also:
        :class:`GraphCut`, :class:`LBP`, :class:`PerturbAndMaxProduct`
    """

    name: ClassVar[str] = "max_product"
    has_probability: ClassVar[bool] = False
    damping: float = 0.3
    max_sweeps: int = 100
    tolerance: float = 1e-6
    schedule: str = "auto"
    n_forests: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("n_forests", self.n_forests, 0)

    def init(self, problem: Problem) -> _State:
        plan = self.plan(problem)

        def start(n_forests: int) -> Messages:
            return problem.kernels.start_messages(problem.view, plan, maximise=True, n_forests=n_forests)

        return _State(start(0), Incumbent.start(problem), start(self.n_forests) if self.n_forests else None)

    def step(self, problem: Problem, state: _State) -> Step:
        active = [m for m in (state.messages, state.reweighted) if m is not None and not m.converged]
        for messages in active:
            left = min(self.max_sweeps - messages.sweeps, SWEEPS_PER_DECODING - messages.sweeps % SWEEPS_PER_DECODING)
            problem.kernels.send(problem.view, messages, min(left, problem.sweeps_per_step))
            if messages is state.messages and messages.sweeps % SWEEPS_PER_DECODING == 0:
                self._decode(problem, state)
        done = [messages.sweeps for messages in active if not messages.converged]
        return Step(min(done, default=self.max_sweeps), self.max_sweeps, not done)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        self._decode(problem, state)
        status = Status.CONVERGED if state.messages.converged else None
        outcome = Outcome(state.incumbent.labels, n_sweeps=state.messages.sweeps, status=status)
        if state.reweighted is not None:
            best = problem.kernels.forest_log_partitions(problem.view, state.reweighted, maximise=True).mean(axis=1)
            outcome.bound = namespace(best).maximum(best, state.incumbent.score)  # rounding
        return outcome

    def _decode(self, problem: Problem, state: _State) -> None:
        state.incumbent.update(problem, problem.kernels.decode_messages(problem.view, state.messages))
