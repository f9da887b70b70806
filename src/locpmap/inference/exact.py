"""Exact log partition, marginals and MAP by variable elimination.

The messages of the last eliminations add up to log Z.  On the way back, ``p(y_t, scope) = p(y_t | scope) · p(scope)``
gives the marginals without a subtraction, and the best ``y_t`` given the best scope gives the MAP.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, whole_number
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.elimination import Plan, plan_elimination
from locpmap.inference.elimination_passes import Tables, forward_backward, max_out, sum_out
from locpmap.result import BoundKind, Status

STEP_ENTRIES = 2**24  # table entries dealt with between two looks at the clock
CHUNK_ENTRIES = 2**20  # in the tables of images that are eliminated together


@dataclass
class _State:
    work: Iterator[int]  # yields the number of table entries dealt with
    total: int
    labels: Array  # (N, S)
    probability: Array  # (N, S, L)
    log_partition: Array  # (N,)
    done: int = 0


@dataclass(frozen=True, eq=False)
class Exact(Decoder):
    """Exact answers on any graph whose elimination tables are small: trees, narrow grids, small models.

    Time is about 0.1 µs for each entry of all tables and 0.2 ms for each site (a chain of 100,000 sites takes half
    a minute, where ``lbp`` is as exact in less than a second); memory is that of the largest table and, up to half a
    gigabyte, of all.  Labels are the MAP, ``probability`` the marginals, ``log_partition`` is exact.
    A grid w wide takes tables of L^(w + 1): with two labels 16×16 is a matter of a second, 20×20 of a minute, and
    more than 23 wide is refused by default.

    Args:
        max_table: The largest table to make, in entries; a model that needs a larger one is refused.

    >>> import numpy as np
    >>> import locpmap as lp
    >>> result = lp.infer(lp.Potentials.grid(np.zeros((1, 2, 2)), 1.0), "exact")
    >>> bool(np.isclose(result.log_partition, np.log(2 * np.e + 2)))
    True
    """

    name: ClassVar[str] = "exact"
    at_end: ClassVar[Status] = Status.EXACT
    max_table: int = 2**24

    def __post_init__(self) -> None:
        whole_number("max_table", self.max_table, 1, 2**62)

    def init(self, problem: Problem) -> _State:
        potentials = problem.potentials
        unary = potentials.unary
        labels = np.zeros(unary.shape[:2], np.int64)
        state = _State(iter(()), 0, labels, np.zeros(unary.shape), np.zeros(len(unary)))
        jobs = []
        for images, allowed in _by_allowed_labels(unary):
            plan = plan_elimination(potentials.structure, allowed.sum(axis=1).tolist(), self.max_table)
            entries = sum(plan.sizes)
            state.total += 4 * len(images) * (entries + 1)
            per_chunk = max(1, CHUNK_ENTRIES // (entries + 1))
            jobs += [(images[k : k + per_chunk], allowed, plan) for k in range(0, len(images), per_chunk)]
        state.work = (entries for job in jobs for entries in _solve(problem, state, *job))
        return state

    def step(self, problem: Problem, state: _State) -> Step:
        until = state.done + STEP_ENTRIES
        for entries in state.work:
            state.done += entries
            if state.done >= until:
                break
        return Step(state.done, state.total)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        if state.done < state.total:
            share = 100 * state.done // state.total
            raise InputError(
                f"max_seconds ran out with {share} % of the elimination done, and exact has no answer before the end:"
                f" expected more time or a smaller model"
            )
        return Outcome(
            labels=state.labels,
            probability=state.probability.astype(problem.potentials.unary.dtype, copy=False),
            log_partition=state.log_partition,
            log_partition_kind=BoundKind.EXACT,
        )


def _by_allowed_labels(unary: Array) -> Iterator[tuple[Array, Array]]:
    """Images with the same allowed labels, which share a plan: their numbers and the labels (S, L)."""
    allowed = unary > -np.inf
    kinds: dict[bytes, list[int]] = {}
    for n, mask in enumerate(allowed):
        kinds.setdefault(np.packbits(mask).tobytes(), []).append(n)
    return ((np.array(images), allowed[images[0]]) for images in kinds.values())


def _solve(problem: Problem, state: _State, images: Array, allowed: Array, plan: Plan) -> Iterator[int]:
    """Fill in the answers of some images."""
    tables = Tables(problem.model, images, allowed, plan)
    choices = [np.flatnonzero(mask) for mask in allowed]
    fixed = allowed.sum(axis=1) == 1
    state.labels[np.ix_(images, fixed)] = allowed[fixed].argmax(axis=1)
    state.probability[images] = np.where(fixed[:, None] & allowed, 1.0, 0.0)

    log_partition = tables.constant.copy()
    marginals: dict[int, Array] = {}  # p(scope of t) until t is dealt with
    for t, conditional in forward_backward(tables, sum_out, log_partition):
        yield len(images) * plan.sizes[t]
        if conditional is None:
            continue
        site, scope = plan.order[t], plan.scopes[t]
        joint = conditional * marginals.pop(t)[:, None] if scope else conditional
        marginal = joint.reshape(*joint.shape[:2], -1).sum(axis=2)
        state.probability[images[:, None], site, choices[site]] = marginal
        for child in plan.children[t]:
            gone = tuple(k for k, other in enumerate((site, *scope), start=1) if other not in plan.scopes[child])
            marginals[child] = np.moveaxis(joint.sum(axis=gone), 1, -1)
    state.log_partition[images] = log_partition

    best = np.zeros((len(images), problem.potentials.n_sites), np.int64)  # positions among the allowed labels
    rows = np.arange(len(images))
    for t, incoming in forward_backward(tables, max_out, np.zeros(len(images))):
        yield len(images) * plan.sizes[t]
        if incoming is None:
            continue
        site = plan.order[t]
        scores = tables.unary[site] + sum(pair[rows, :, best[:, other]] for other, pair in tables.pairs[t])
        for child, message in zip(plan.children[t], incoming, strict=True):
            *rest, _ = plan.scopes[child]  # the scope ends with the site itself
            scores = scores + message[(rows, *(best[:, other] for other in rest))]
        best[:, site] = scores.argmax(axis=1)
        state.labels[images, site] = choices[site][best[:, site]]
    yield 4 * len(images)
