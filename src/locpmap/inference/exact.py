"""Exact log partition, marginals and MAP by variable elimination.

In the forward pass, the final messages add up to log Z.  In the backward pass, the marginals follow from
``p(y_t, scope) = p(y_t | scope) · p(scope)`` without subtractions, and the MAP from the best ``y_t`` given its scope.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, whole_number
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.elimination import (
    LOG_RANGE,
    LOG_SUM,
    MAX,
    SUM,
    Plan,
    Tables,
    forward_backward,
    plan_elimination,
    site_weights,
)
from locpmap.result import BoundKind, Status

STEP_ENTRIES = 2**24  # table entries processed per step, between two checks of the time limit
CHUNK_ENTRIES = 2**20  # table entries of images that are processed together


@dataclass
class _State:
    work: Iterator[int]  # yields the number of table entries processed
    total: int
    labels: Array  # (N, S)
    probability: Array  # (N, S, L)
    log_partition: Array  # (N,)
    done: int = 0


@dataclass(frozen=True, eq=False)
class Exact(Decoder):
    """Exact MAP, marginals and log Z by variable elimination.

    Suitable for trees, narrow grids and small models, whose elimination tables are small.  ``labels`` are the MAP,
    ``probability`` the marginals.

    Args:
        max_table (int, default 2**24): Number of entries of the largest table allowed.

    Notes:
        :func:`infer` raises TooLargeError if the model needs a larger table.

        On one CPU core, a run takes about 20 ns per table entry and 0.3 ms per site.  A grid of width w needs tables
        of L^(w + 1) entries.  With two labels, a 16×16 grid (3·10^7 entries in all tables) takes about 1 second and
        a 20×20 grid (8·10^8) about 20.  By default the width is at most 23.  Runs are slower if pairs of labels are
        forbidden or the scores of one table can differ by more than 600.

        Up to half a gigabyte of messages is cached.  If a model has more, only some are stored, and the others are
        computed again, once or twice.  A 20×20 grid needs 0.7 GB, a 23×23 grid 2 GB.

        On long chains use ``lbp``, which is exact there, too: a chain of 100,000 sites takes less than a second
        instead of half a minute.

    Example:
        >>> result = lp.infer(lp.Potentials.grid(np.zeros((1, 2, 2)), 1.0), "exact")
        >>> bool(np.isclose(result.log_partition, np.log(2 * np.e + 2)))
        True

    See Also:
        :class:`LBP`, :class:`GraphCut`
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
            percent = 100 * state.done // state.total
            raise InputError(
                f"max_seconds ran out with {percent} % of the elimination done, and exact has no partial result:"
                f" expected more time or a smaller model"
            )
        return Outcome(
            labels=state.labels,
            probability=state.probability.astype(problem.potentials.unary.dtype, copy=False),
            log_partition=state.log_partition,
            log_partition_kind=BoundKind.EXACT,
        )


def _by_allowed_labels(unary: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the indices and the allowed labels (S, L) of each group of images with the same allowed labels."""
    allowed = unary > -np.inf
    kinds: dict[bytes, list[int]] = {}
    for n, mask in enumerate(allowed):
        kinds.setdefault(np.packbits(mask).tobytes(), []).append(n)
    return ((np.array(images), allowed[images[0]]) for images in kinds.values())


def _solve(problem: Problem, state: _State, images: Array, allowed: Array, plan: Plan) -> Iterator[int]:
    """Compute the results of some images, yielding the number of table entries processed."""
    tables = Tables(problem.model, images, allowed, plan)
    linear = tables.log_range <= LOG_RANGE
    if linear.any() and not linear.all():
        for part in (images[linear], images[~linear]):
            yield from _solve(problem, state, part, allowed, plan)
        return
    choices = [np.flatnonzero(mask) for mask in allowed]
    fixed = allowed.sum(axis=1) == 1
    state.labels[np.ix_(images, fixed)] = allowed[fixed].argmax(axis=1)
    state.probability[images] = np.where(fixed[:, None] & allowed, 1.0, 0.0)

    sums = SUM if linear.all() else LOG_SUM
    log_partition = tables.constant.copy()
    marginals: dict[int, Array] = {}  # p(scope of t), until t is processed
    for t, incoming in forward_backward(tables, sums, log_partition):
        yield len(images) * plan.sizes[t]
        if incoming is None:
            continue
        joint = tables.table(t, incoming, sums)
        if sums is LOG_SUM:
            joint, _ = site_weights(joint)
        total = joint.sum(axis=1)
        total[total == 0] = 1.0  # impossible scopes
        joint *= (marginals.pop(t, 1.0) / total)[:, None]
        axes = tables.axes[t]
        marginal = joint.reshape(*joint.shape[:2], -1).sum(axis=2)
        state.probability[images[:, None], axes[0], choices[axes[0]]] = marginal
        for child in plan.children[t]:
            scope = tables.axes[child][1:]
            left = [site for site in axes if site in scope]
            summed = joint.sum(axis=tuple(k for k, site in enumerate(axes, start=1) if site not in scope))
            marginals[child] = np.ascontiguousarray(summed.transpose(0, *(1 + left.index(site) for site in scope)))
    state.log_partition[images] = log_partition

    best = np.zeros((len(images), problem.potentials.n_sites), np.int64)  # positions among the allowed labels
    rows = np.arange(len(images))
    for t, incoming in forward_backward(tables, MAX, np.zeros(len(images))):
        yield len(images) * plan.sizes[t]
        if incoming is None:
            continue
        site = plan.order[t]
        scores = tables.unary[site] + sum(pair[rows, :, best[:, other]] for other, pair in tables.pairs[t])
        for child, message in zip(plan.children[t], incoming, strict=True):
            here = tuple(slice(None) if other == site else best[:, other] for other in tables.axes[child][1:])
            scores = scores + message[(rows, *here)]
        best[:, site] = scores.argmax(axis=1)
        state.labels[images, site] = choices[site][best[:, site]]
    yield 4 * len(images)
