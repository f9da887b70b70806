"""What decoders that pass messages share: their options, and how far a run is."""

from __future__ import annotations

from locpmap.errors import InputError, whole_number, within
from locpmap.inference.decoder import Problem, Step
from locpmap.kernels.spec import Messages
from locpmap.result import Status

SCHEDULES = ("auto", "coloured", "sequential")


def check_options(damping: float, max_sweeps: int, tolerance: float, schedule: str) -> None:
    """Refuse what message passing cannot work with."""
    within("damping", damping, 0, 0.99)
    whole_number("max_sweeps", max_sweeps, 1)
    within("tolerance", tolerance, 0)
    if schedule not in SCHEDULES:
        raise InputError(f"schedule is {schedule!r}, expected {', '.join(map(repr, SCHEDULES))}")


def send(problem: Problem, messages: Messages, max_sweeps: int) -> Step:
    """Make some sweeps.  Nobody waits for the last ones, which a device may still make: `finish` does."""
    n_sweeps = min(max_sweeps - messages.sweeps, problem.sweeps_per_step)
    problem.kernels.send(problem.view, messages, n_sweeps)
    if messages.launched >= max_sweeps:
        return Step(max_sweeps, max_sweeps)
    return Step(messages.sweeps, max_sweeps, messages.converged)


def status_of(messages: Messages) -> Status | None:
    """Return what a step may not have waited for: whether messages have settled."""
    return Status.CONVERGED if messages.converged else None
