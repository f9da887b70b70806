"""Options and steps shared by decoders that pass messages."""

from locpmap.errors import InputError, whole_number, within
from locpmap.inference.decoder import Problem, Step
from locpmap.kernels.spec import Messages
from locpmap.result import Status

SCHEDULES = ("auto", "coloured", "sequential")


def check_options(damping: float, max_sweeps: int, tolerance: float, schedule: str) -> None:
    """Raise if an option of message passing is invalid."""
    within("damping", damping, 0, 0.99)
    whole_number("max_sweeps", max_sweeps, 1)
    within("tolerance", tolerance, 0)
    if schedule not in SCHEDULES:
        raise InputError(f"schedule is {schedule!r}, expected {', '.join(map(repr, SCHEDULES))}")


def send(problem: Problem, messages: Messages, max_sweeps: int) -> Step:
    """Perform some sweeps.  The last ones may still run on the device; `finish` waits for them."""
    n_sweeps = min(max_sweeps - messages.sweeps, problem.sweeps_per_step)
    problem.kernels.send(problem.view, messages, n_sweeps)
    if messages.launched >= max_sweeps:
        return Step(max_sweeps, max_sweeps)
    return Step(messages.sweeps, max_sweeps, messages.converged)


def status_of(messages: Messages) -> Status | None:
    """Return CONVERGED if the messages have converged, otherwise None.  On a GPU this waits for the last sweeps."""
    return Status.CONVERGED if messages.converged else None
