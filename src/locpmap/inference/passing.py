"""What decoders that pass messages share: the messages, the order in which sites send, and the beliefs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen
from locpmap.errors import InputError
from locpmap.inference.decoder import Problem, at_least, within
from locpmap.inference.trees import breadth_first, is_forest
from locpmap.kernels.reference.messages import UNVISITED
from locpmap.kernels.threads import ranges

Array = npt.NDArray[Any]

SCHEDULES = ("auto", "coloured", "sequential")

# The first sweeps are never damped: where messages settle by themselves they do so then, and damping would slow them.
UNDAMPED_SWEEPS = 10


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
    forest = is_forest(problem.model)
    damping = 0.0 if forest else float(damping)
    if schedule == "coloured" or (schedule == "auto" and not forest):
        return Plan(problem.model.order, True, damping, float(tolerance), exact=False)
    outward = breadth_first(problem.model).order
    there_and_back = frozen(np.concatenate([outward[::-1], outward]))
    return Plan(there_and_back, False, damping, 0.0 if forest else float(tolerance), exact=forest)


@dataclass
class Passing:
    """Messages on the way.  An image without a dirty site has converged and is left alone."""

    messages: Array  # (N, 2E, L)
    dirty: Array  # (N, S) marks of the sites that have something new to say
    plan: Plan
    sweeps: int = 0

    @classmethod
    def start(cls, problem: Problem, plan: Plan) -> Passing:
        """No site has said anything."""
        n_images, n_sites, n_labels = problem.potentials.unary.shape
        messages = np.zeros((n_images, 2 * len(problem.model.edges), n_labels))
        return cls(messages, np.full((n_images, n_sites), UNVISITED, np.uint8), plan)

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
        return not self.dirty.any() or (self.plan.exact and self.sweeps > 0)


def log_beliefs(problem: Problem, messages: Array, rho: Array) -> tuple[Array, Array]:
    """Normalised logarithms of the beliefs (N, S, L), and the normalisers (N, S).

    A site whose every label is forbidden (no labelling is allowed) has normaliser -inf and believes in its unaries.
    """
    from scipy.sparse import csr_array

    model, unary = problem.model, problem.potentials.unary
    shape = (unary.shape[1], messages.shape[1])
    incoming = csr_array((rho[model.edge], np.arange(shape[1]), model.indptr), shape=shape)
    beliefs = np.stack([scores + incoming @ received for scores, received in zip(unary, messages, strict=True)])
    stuck = np.isneginf(beliefs.max(axis=2))
    beliefs[stuck] = unary[stuck]
    top = beliefs.max(axis=2)
    # The largest goes first: next to scores of 1e12 and more, the logarithm of a sum is lost in rounding.
    beliefs -= top[:, :, None]
    log_sum = np.log(np.exp(beliefs).sum(axis=2))
    beliefs -= log_sum[:, :, None]
    return beliefs, np.where(stuck, -np.inf, top + log_sum)
