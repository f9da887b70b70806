"""The common part of decoders that pass messages: their options, steps and marginals."""

from typing import Any, ClassVar

from locpmap.arrays import best_labels, cast, namespace
from locpmap.errors import InputError, whole_number, within
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.kernels.spec import Messages, Plan
from locpmap.result import BoundKind, Status

SCHEDULES = ("auto", "coloured", "sequential")


class MessagePassing(Decoder):
    """Base class of decoders with the options of message passing."""

    unbounded: ClassVar[str] = "its messages run until the whole raster has converged"
    on_gpu: ClassVar[bool] = True
    damping: float
    max_sweeps: int
    tolerance: float
    schedule: str

    def __post_init__(self) -> None:
        within("damping", self.damping, 0, 0.99)
        whole_number("max_sweeps", self.max_sweeps, 1)
        within("tolerance", self.tolerance, 0)
        if self.schedule not in SCHEDULES:
            raise InputError(f"schedule is {self.schedule!r}, expected {', '.join(map(repr, SCHEDULES))}")

    def plan(self, problem: Problem) -> Plan:
        """Return the order of the messages."""
        return problem.kernels.plan_messages(problem.view, self.schedule, self.damping, self.tolerance)


class SumProduct(MessagePassing):
    """Base class of decoders whose messages give marginals."""

    def step(self, problem: Problem, state: Messages) -> Step:
        """Perform some sweeps.  The last ones may still run on the device; `finish` waits for them."""
        n_sweeps = min(self.max_sweeps - state.sweeps, problem.sweeps_per_step)
        problem.kernels.send(problem.view, state, n_sweeps)
        if state.launched >= self.max_sweeps:
            return Step(self.max_sweeps, self.max_sweeps)
        return Step(state.sweeps, self.max_sweeps, state.converged)

    def outcome(self, problem: Problem, state: Messages, beliefs: Any, log_partition: Any, kind: BoundKind) -> Outcome:
        """Return the outcome of log-beliefs (N, S, L), which are overwritten."""
        probability = cast(namespace(beliefs).exp(beliefs, out=beliefs), problem.potentials.unary.dtype)
        return Outcome(
            labels=best_labels(probability),
            probability=probability,
            log_partition=log_partition,
            log_partition_kind=kind,
            n_sweeps=state.sweeps,  # read last: it waits for the GPU
            status=Status.CONVERGED if state.converged else None,
        )
