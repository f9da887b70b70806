"""Graph cuts: the MAP of attractive two-label models, and α-expansion for more labels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, whole_number
from locpmap.inference.decoder import IMPOSSIBLE, Decoder, Outcome, Problem, Step
from locpmap.kernels.reference.scores import edge_tables
from locpmap.kernels.spec import ModelView
from locpmap.result import Status

SITES_AT_A_TIME = 2**14  # sites per step
ENTRIES_AT_A_TIME = 2**22  # table entries checked together


@dataclass
class _State:
    labels: Array  # (N, S)
    done: int = 0
    failed: Any = None  # (N,) number of consecutive expansions without improvement


@dataclass(frozen=True, eq=False)
class GraphCut(Decoder):
    """Graph cuts: the MAP of an attractive two-label model, or α-expansion for more labels.

    With two labels, every table t must be attractive: ``t[0, 0] + t[1, 1] >= t[0, 1] + t[1, 0]``.  The result is then
    exact.  Tables may contain -inf.

    With more labels, α-expansion (Boykov, Veksler & Zabih 2001) is used.  A move lets any set of sites change to one
    label α and is optimal among such moves.  The run ends when no move improves the score.  Every table must satisfy
    ``t[α, α] + t[β, γ] >= t[β, α] + t[α, γ]``, as Potts weights of at least 0 and other metrics do, and must be
    finite.  For metrics the energy is within a constant factor of the optimum.

    Args:
        max_sweeps (int, default 100): Number of rounds over all labels after which α-expansion stops.

    Notes:
        :func:`infer` raises InputError if a table does not satisfy the condition.  Each cut is optimal up to rounding
        in double precision.  The decoder runs on the CPU only.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result = lp.infer(pot, lp.GraphCut())
        >>> result.labels, str(result.status)
        (array([[1, 1, 1]]), 'exact')

    See Also:
        :class:`MaxProduct`, :class:`ICM`, :class:`PerturbAndMAP`
    """

    name: ClassVar[str] = "graph_cut"
    has_probability: ClassVar[bool] = False
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        whole_number("max_sweeps", self.max_sweeps, 1)

    def init(self, problem: Problem) -> _State:
        labels = problem.potentials.unary.argmax(axis=2)
        if problem.potentials.n_labels > 2:
            _check_expandable(problem)
            return _State(labels, failed=np.zeros(len(labels), np.int64))
        if problem.potentials.n_labels == 2:
            check_attraction(problem)
        return _State(labels)

    def step(self, problem: Problem, state: _State) -> Step:
        n_images, n_sites, n_labels = problem.potentials.unary.shape
        if state.failed is not None:
            alpha = state.done % n_labels
            active = np.flatnonzero(state.failed < n_labels)
            gains = problem.kernels.expand(problem.view, state.labels, alpha, active)
            state.failed[active] = np.where(gains > 0, 0, state.failed[active] + 1)
            state.done += 1
            return Step(state.done, n_labels * self.max_sweeps, converged=bool((state.failed >= n_labels).all()))
        images = np.arange(state.done, min(state.done + max(1, SITES_AT_A_TIME // n_sites), n_images))
        if n_labels == 2:
            state.labels[images] = 0
            best_cut(problem, problem.view, state.labels, images)
        state.done += len(images)
        return Step(state.done, n_images)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        if state.failed is None:
            return Outcome(state.labels, status=Status.EXACT)
        return Outcome(state.labels, n_sweeps=state.done / problem.potentials.n_labels)


def best_cut(problem: Problem, model: ModelView, labels: Array, images: Array) -> None:
    """Change labels (N, S) of some images of a two-label model from 0 everywhere to the best labels."""
    if np.isnan(problem.kernels.expand(model, labels, 1, images)).any():
        raise InputError(IMPOSSIBLE)


def check_attraction(problem: Problem) -> None:
    """Raise an error if a table of a two-label model is not attractive."""
    for edges, tables in _checked_tables(problem):
        with np.errstate(invalid="ignore"):  # -inf - -inf is NaN, which compares False: not repulsive
            attraction = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
        repels = attraction < -_rounding(problem, tables)
        if repels.any():
            e = repels.argmax()
            raise InputError(
                f"graph cuts need pairwise tables t that attract, but t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]"
                f" is {attraction[e]:g} on {_edge_name(problem, int(edges[e]))}, expected at least 0"
            )


def _check_expandable(problem: Problem) -> None:
    """Raise an error if a table is unsuitable for α-expansion."""
    for edges, tables in _checked_tables(problem):
        if np.isneginf(tables).any():
            e = edges[np.isneginf(tables).any(axis=(1, 2)).argmax()]
            raise InputError(
                f"graph_cut does not support forbidden pairs (-inf) with more than two labels,"
                f" but {_edge_name(problem, int(e))} has one"
            )
        slack = _rounding(problem, tables)
        for alpha in range(problem.potentials.n_labels):
            column, row = tables[:, :, alpha, None], tables[:, alpha, None, :]
            bad = tables[:, alpha, alpha, None, None] + tables - column - row < -slack
            if bad.any():
                e, beta, gamma = np.argwhere(bad)[0].tolist()
                where = _edge_name(problem, int(edges[e]))
                raise InputError(
                    f"graph_cut with more than two labels needs t[α, α] + t[β, γ] >= t[β, α] + t[α, γ] in every"
                    f" pairwise table t, which fails on {where} for α = {alpha}, β = {beta}, γ = {gamma}"
                )


def _checked_tables(problem: Problem) -> Iterator[tuple[Array, Array]]:
    """Yield edges (e,) and their tables (e, L, L), NaN where a unary forbids a label; none for Potts weights >= 0."""
    model, potentials = problem.model, problem.potentials
    if model.potts and potentials.pairwise.least_weight >= 0:
        return
    allowed = potentials.unary > -np.inf
    shared = allowed.all() and len(model.tables) == len(model.features) == 1
    per_check = max(1, ENTRIES_AT_A_TIME // potentials.n_labels**2)
    for n in range(1 if shared else potentials.n_images):
        for k in range(0, len(model.edges), per_check):
            edges = np.arange(k, min(k + per_check, len(model.edges)))
            ends = allowed[n, model.edges[edges]]  # (e, 2 ends, L)
            tables = edge_tables(model, n, edges)
            tables[~(ends[:, 0, :, None] & ends[:, 1, None, :])] = np.nan
            yield edges, tables


def _rounding(problem: Problem, tables: Array) -> float:
    """Return a bound on rounding errors in the precision of the given pairwise term."""
    pairwise = problem.potentials.pairwise
    given = pairwise.weights[0] if pairwise.weights else pairwise.tables
    assert given is not None
    return float(8 * np.finfo(given.dtype).eps * np.abs(tables[np.isfinite(tables)]).max(initial=0.0))


def _edge_name(problem: Problem, edge: int) -> str:
    """Return a readable name of an edge, with the coordinates of its sites."""
    structure = problem.potentials.structure
    ends = [np.unravel_index(site, structure.shape) for site in structure.edges()[edge]]
    names = ["(" + ", ".join(str(int(k)) for k in end) + ")" if len(end) > 1 else str(int(end[0])) for end in ends]
    return f"edge {edge} between sites {names[0]} and {names[1]}"
