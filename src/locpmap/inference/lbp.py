"""Loopy belief propagation: sum-product messages until they agree; exact on graphs without cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from locpmap.arrays import cast, dtype_beside, is_tensor, namespace
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.passing import Passing, check_options, log_beliefs, make_plan, plain
from locpmap.kernels import Model
from locpmap.potentials import Potentials
from locpmap.result import BoundKind

Array = npt.NDArray[Any]

# The linear domain is safe while a product of messages at one site stays above exp(-this), in double precision and in
# single, in which messages on a GPU may be.
MOST_RANGE = 300.0
MOST_RANGE_SINGLE = 40.0
# Tables that differ from edge to edge are expanded for it up to this many labels: at most 4 times the messages' memory.
MOST_LABELS = 8


class Domain(NamedTuple):
    """Which images' messages are kept without logarithms."""

    couplings: Array  # (1|N, 1|E, ..) see `pass_linear`
    linear: Array  # (N,)
    n_linear: int


_domains: WeakKeyDictionary[Potentials, Domain] = WeakKeyDictionary()


@dataclass
class _State:
    passing: Passing
    domain: Domain
    weights: Array  # (N, S, L) `linear_weights`, or none where no image is linear


@dataclass(frozen=True, eq=False)
class LBP(Decoder):
    """Beliefs from sum-product messages, and the Bethe approximation of log Z.

    A sweep costs O(E·L) for Potts models and O(E·L²) for others; memory is 8 bytes times (2E + S)·L per image.

    Args:
        damping: Share of the old message in the new, 0 to 0.99; raise it where messages oscillate.  Used from the tenth
            sweep on, and only where the graph has cycles.
        max_sweeps: Sweeps after which to stop.
        tolerance: Converged when no logarithm of a message moves by more than this.
        schedule: "coloured" (colour classes in turn, threads share them), "sequential" (breadth-first from the leaves
            to the root and back; threads share only images) or "auto": sequential where there is no cycle.
    """

    name: ClassVar[str] = "lbp"
    on_gpu: ClassVar[bool] = True
    damping: float = 0.3
    max_sweeps: int = 200
    tolerance: float = 1e-6
    schedule: str = "auto"

    def __post_init__(self) -> None:
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> _State:
        domain = domain_of(problem.potentials)
        all_linear = domain.n_linear == len(domain.linear)
        plan = make_plan(problem, self.schedule, self.damping, self.tolerance)
        passing = Passing.start(problem, plan, 1.0 if all_linear else 0.0)
        if domain.n_linear and not all_linear:
            passing.messages += domain.linear[:, None, None]
        unary = problem.potentials.unary
        return _State(passing, domain, linear_weights(unary) if domain.n_linear else unary[:0])

    def step(self, problem: Problem, state: _State) -> Step:
        passing, domain = state.passing, state.domain
        passes: list[tuple[Any, ...]] = []
        if domain.n_linear:
            passes.append((problem.kernels.pass_linear, domain.linear, state.weights, domain.couplings))
        if domain.n_linear < len(domain.linear):
            passes.append((problem.kernels.pass_messages, domain.linear, plain(problem), False))
        passing.advance(problem, self.max_sweeps - passing.sweeps, *passes)
        return passing.step(self.max_sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        messages, domain = state.passing.messages, state.domain
        xp = namespace(messages)
        if domain.n_linear == len(messages):
            xp.log(messages, out=messages)
        elif domain.n_linear:
            for n in xp.argwhere(domain.linear)[:, 0].tolist():
                xp.log(messages[n], out=messages[n])
        beliefs, site_terms = log_beliefs(problem, messages, plain(problem))
        edge_terms = xp.empty_like(site_terms)
        problem.sweep(problem.kernels.bethe_edges, messages, beliefs, edge_terms)
        probability = cast(xp.exp(beliefs, out=beliefs), problem.potentials.unary.dtype)
        site_terms += edge_terms
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            log_partition=site_terms.sum(axis=1, dtype=dtype_beside(site_terms, "float64")),
            log_partition_kind=BoundKind.BETHE,
            n_sweeps=state.passing.sweeps,  # last: on a GPU this waits for all that was launched before
            status=state.passing.status,
        )


def domain_of(potentials: Potentials) -> Domain:
    """The domain of each image's messages.

    Counting waits for a GPU, so that what Potts weights come to there, 2 numbers per edge, is kept for as long as the
    potentials live.
    """
    if (kept := _domains.get(potentials)) is not None:
        return kept
    couplings, linear = linear_domain(potentials.model)
    domain = Domain(couplings, linear, int(linear.sum()))
    if is_tensor(couplings) and potentials.pairwise.potts:
        _domains[potentials] = domain
    return domain


def linear_weights(unary: Array) -> Array:
    """``exp(unary)`` up to a factor per site, of which messages know nothing, (N, S, L).

    In double precision with a largest weight of 1, or, on a GPU, where that takes one operation, with a sum of 1.
    """
    if is_tensor(unary):
        return unary.softmax(2)  # type: ignore[attr-defined]
    return np.exp(cast(unary, "float64") - np.amax(unary, 2)[:, :, None])


def linear_domain(model: Model) -> tuple[Array, Array]:
    """The tables as `pass_linear` wants them, and which images (N,) are safe there."""
    n_images, _, n_labels = model.unary.shape
    xp = namespace(model.features)
    if model.potts:
        couplings = xp.exp(xp.stack([-model.features, model.features], 3).clip(max=0))
        spread = abs(model.features[:, :, 0])
    elif max(model.features.shape[1], model.tables.shape[1]) == 1 or n_labels <= MOST_LABELS:
        n_features = model.features.shape[2]
        tables = sum(model.features[:, :, f, None, None] * model.tables[:, :, f] for f in range(n_features))
        top = xp.amax(tables, (2, 3)).clip(min=float(np.finfo(np.float32).min))[:, :, None, None]
        spread = top[:, :, 0, 0] - xp.amin(tables, (2, 3))
        couplings = xp.exp(tables - top)
    else:
        return xp.zeros_like(model.features[:1, :1, :1, None]), xp.zeros_like(model.unary[:, 0, 0], dtype=xp.bool)
    spread = xp.broadcast_to(spread, (len(spread), len(model.edges)))
    largest, most = _largest_sums(model, spread)
    return couplings, (largest <= most).repeat(n_images // len(largest))


def _largest_sums(model: Model, spread: Any) -> tuple[Any, float]:
    """The largest sum of the spreads (1|N, E) at any site, (1|N,), and what it may come to; on a GPU a bound on it."""
    if is_tensor(spread):
        largest = spread.amax(1) * model.indptr.diff().amax() if spread.shape[1] else spread.sum(axis=1)
        return largest, MOST_RANGE if spread.itemsize == 8 else MOST_RANGE_SINGLE
    largest = [np.bincount(model.edges.T.ravel(), np.tile(row, 2)).max(initial=0) for row in spread]
    return np.array(largest), MOST_RANGE
