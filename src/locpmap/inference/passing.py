"""What decoders that pass messages share: the messages, the order in which sites send, and the beliefs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen, namespace, place_beside
from locpmap.errors import InputError
from locpmap.graphs import Grid
from locpmap.inference.decoder import Problem, Step, at_least, within
from locpmap.inference.trees import breadth_first, is_forest, lists_of, outward, there_and_back
from locpmap.kernels.reference.messages import UNVISITED
from locpmap.kernels.threads import ranges
from locpmap.result import Status

Array = npt.NDArray[Any]

SCHEDULES = ("auto", "coloured", "sequential")

# The first sweeps are never damped: where messages settle by themselves they do so then, and damping would slow them.
UNDAMPED_SWEEPS = 10
# A GPU makes this many sweeps before it is asked whether messages have settled: it sees for itself, and then idles.
SWEEPS_PER_LAUNCH = 64


def check_options(damping: float, max_sweeps: int, tolerance: float, schedule: str) -> None:
    """Refuse what message passing cannot work with."""
    within("damping", damping, 0, 0.99)
    at_least("max_sweeps", max_sweeps, 1)
    within("tolerance", tolerance, 0)
    if schedule not in SCHEDULES:
        raise InputError(f"schedule is {schedule!r}, expected {', '.join(map(repr, SCHEDULES))}")


class Plan(NamedTuple):
    """How messages are passed on one graph."""

    order: Array  # sites in the order in which a sweep lets them send
    coloured: bool  # whether that is one colour class after another
    damping: float
    tolerance: float
    exact: bool  # whether one sweep says all there is to say


def make_plan(problem: Problem, schedule: str, damping: float, tolerance: float) -> Plan:
    """Colour classes, or a breadth-first forest from the leaves to the roots and back.

    On a graph without cycles one sweep of the latter is exact: "auto" takes it.
    """
    model, structure = problem.model, problem.potentials.structure
    few_edges = len(model.edges) < problem.potentials.n_sites
    forest = few_edges and is_forest(lists_of(structure) if problem.kernels.device else model)
    damping = 0.0 if forest else float(damping)
    if schedule == "coloured" or (schedule == "auto" and not forest):
        return Plan(model.order, True, damping, float(tolerance), exact=False)
    tolerance = 0.0 if forest else float(tolerance)
    if problem.kernels.device:
        order = place_beside(model.unary, there_and_back(structure)[0])
    else:
        onward = breadth_first(model).order
        order = frozen(np.concatenate([onward[::-1], onward]))
    return Plan(order, False, damping, tolerance, exact=forest)


def layout(problem: Problem, plan: Plan) -> dict[str, Any]:
    """What kernels on a GPU may know of a plan's order: levels of sites to visit at once, or which grid it is of."""
    structure = problem.potentials.structure
    if not plan.coloured:
        return {"ends": there_and_back(structure)[1]}
    if isinstance(structure, Grid) and structure.connectivity == 4 and structure.n_sites > 1:
        return {"grid": (*structure.shape, (structure.row + structure.column) % 2)}
    return {}


def parents_first(problem: Problem) -> Any:
    """The sites in breadth-first order, (S,)."""
    if problem.kernels.device:
        return outward(problem.potentials.structure, str(problem.model.unary.device))
    return frozen(breadth_first(problem.model).order)


def plain(problem: Problem) -> Any:
    """An appearance of 1 for every edge, (E,); for kernels on a GPU, None."""
    return None if problem.kernels.device else np.ones(len(problem.model.edges))


@dataclass
class Passing:
    """Messages on the way.  An image without a dirty site has converged and is left alone."""

    messages: Array  # (N, 2E, L): in double precision or, on a GPU, as the unaries
    dirty: Array  # (N, S) marks of the sites that have something new to say
    plan: Plan
    made: int = 0  # sweeps that are known of
    settled: bool = False  # whether no site is dirty
    unread: list[Any] = field(default_factory=list)  # of a launch on a GPU: which sweeps visited a site

    @classmethod
    def start(cls, problem: Problem, plan: Plan, first: float = 0.0) -> Passing:
        """No site has said anything: all messages are ``first``."""
        unary = problem.potentials.unary
        n_images, n_sites, n_labels = unary.shape
        xp = namespace(unary)
        dtype = unary.dtype if problem.kernels.device else np.float64
        messages = xp.full((n_images, 2 * len(problem.model.edges), n_labels), first, dtype=dtype, device=unary.device)
        dirty = xp.full((n_images, n_sites), UNVISITED, dtype=xp.uint8, device=unary.device)
        return cls(messages, dirty, plan)

    def advance(self, problem: Problem, most: int, *passes: tuple[Any, ...]) -> None:
        """Run each kernel with its options (`sweep`) over all sites once, or on a GPU up to ``most`` times."""
        if not problem.kernels.device:
            for kernel, *options in passes:
                self.sweep(problem, kernel, *options, self.damping, self.plan.tolerance)
            self.made += 1
            self.settled = not self.dirty.any()
            return
        state = (problem.model, self.plan.order, self.messages, self.dirty)
        how = (self.plan.damping, self.plan.tolerance, 0, len(self.dirty), 0, len(self.plan.order))
        n_sweeps = 1 if self.plan.exact else min(most, SWEEPS_PER_LAUNCH)
        limits = {"n_sweeps": n_sweeps, "undamped": UNDAMPED_SWEEPS, "made": self.sweeps, **layout(problem, self.plan)}
        answers = [kernel(*state, *options, *how, **limits) for kernel, *options in passes]
        if self.plan.exact:
            self.made = 1  # there is nothing to ask
        else:
            self.unread = answers

    def step(self, max_sweeps: int) -> Step:
        """How far it is.  Nobody waits for the last sweeps that a GPU may make: `sweeps` and `converged` do."""
        if self.unread and self.made + len(self.unread[0]) > max_sweeps:
            return Step(max_sweeps, max_sweeps)
        return Step(self.sweeps, max_sweeps, self.converged)

    @property
    def sweeps(self) -> int:
        """Sweeps made."""
        if self.unread:
            visited = [answer.tolist() for answer in self.unread]
            self.made += max(sum(sweeps[:-1]) for sweeps in visited)
            self.settled = not any(sweeps[-1] for sweeps in visited)
            self.unread = []
        return self.made

    def sweep(self, problem: Problem, kernel: Callable[..., Any], *options: Any) -> None:
        """Run ``kernel(model, order, messages, dirty, *options, lo, hi, begin, stop)`` over all sites."""
        state = (self.plan.order, self.messages, self.dirty, *options)
        if self.plan.coloured:
            problem.sweep(kernel, *state)
            return
        images = ranges(problem.potentials.n_images, problem.threads.n_threads)
        problem.threads.map(kernel, [(problem.model, *state, lo, hi, 0, len(self.plan.order)) for lo, hi in images])

    @property
    def damping(self) -> float:
        """What the next sweep damps by."""
        return self.plan.damping if self.sweeps >= UNDAMPED_SWEEPS else 0.0

    @property
    def converged(self) -> bool:
        """Whether no site has anything new to say."""
        return (self.sweeps > 0 and self.plan.exact) or self.settled

    @property
    def status(self) -> Status | None:
        """What a step may not have waited for: whether messages have settled."""
        return Status.CONVERGED if self.converged else None


def log_beliefs(problem: Problem, messages: Array, rho: Array) -> tuple[Array, Array]:
    """Normalised logarithms of the beliefs (N, S, L), and the normalisers (N, S)."""
    xp, unary = namespace(messages), problem.potentials.unary
    beliefs = xp.empty(unary.shape, dtype=messages.dtype, device=unary.device)
    normalisers = xp.empty(unary.shape[:2], dtype=messages.dtype, device=unary.device)
    problem.sweep(problem.kernels.log_beliefs, messages, rho, beliefs, normalisers)
    return beliefs, normalisers
