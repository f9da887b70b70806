"""Graph cuts: the MAP of attractive two-label models, and α-expansion for more labels."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, whole_number
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.max_flow import best_labels
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables, pair_scores
from locpmap.result import Status

SITES_AT_A_TIME = 2**14  # sites per flow network, in which all images wait for the slowest
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
        :func:`infer` raises InputError if a table does not satisfy the condition.  Each cut is optimal up to 1e-11 of
        its flow.  The decoder runs on the CPU only.

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
        if problem.potentials.n_labels <= 2:
            return _State(labels)
        _check_expandable(problem)
        return _State(labels, failed=np.zeros(len(labels), np.int64))

    def step(self, problem: Problem, state: _State) -> Step:
        n_images, n_sites, n_labels = problem.potentials.unary.shape
        per_step = max(1, SITES_AT_A_TIME // n_sites)
        if state.failed is not None:
            alpha = state.done % n_labels
            active = np.flatnonzero(state.failed < n_labels)
            for k in range(0, len(active), per_step):
                _expand(problem.model, state, active[k : k + per_step], alpha)
            state.done += 1
            return Step(state.done, n_labels * self.max_sweeps, converged=bool((state.failed >= n_labels).all()))
        images = np.arange(state.done, min(state.done + per_step, n_images))
        if n_labels == 2:
            terms = binary_terms(problem, images)
            state.labels[images] = best_labels(terms.bias, problem.model.edges, terms.ahead, terms.back)
        state.done += len(images)
        return Step(state.done, n_images)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        if state.failed is None:
            return Outcome(state.labels, status=Status.EXACT)
        return Outcome(state.labels, n_sweeps=state.done / problem.potentials.n_labels)


class Terms(NamedTuple):
    """Arguments of :func:`locpmap.inference.max_flow.best_labels` for a two-label model."""

    bias: Array  # (B, S)
    ahead: Array  # (B, E)
    back: Array  # (B, E)


def binary_terms(problem: Problem, images: Array) -> Terms:
    """Return the two-label model of some images, or raise if a table is not attractive."""
    model = problem.model
    unary = model.unary[images].astype(np.float64)
    every = np.arange(len(model.edges))
    tables = np.stack([edge_tables(model, n, every) for n in images.tolist()])  # (B, E, 2, 2)
    s00, s01, s10, s11 = _allowed_scores(unary, tables, model.edges)
    with np.errstate(invalid="ignore"):  # -inf - -inf is NaN, which compares False: not repulsive
        attraction = s00 + s11 - s01 - s10
        repels = attraction < -_rounding(problem, tables)
        if not repels.any():
            return _assemble(unary, tables, model.edges)
    n, e = np.argwhere(repels)[0].tolist()
    raise InputError(
        f"graph cuts need pairwise tables t that attract, but t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]"
        f" is {attraction[n, e]:g} on {_edge_name(problem, e)}, expected at least 0"
    )


def _allowed_scores(unary: Array, tables: Array, edges: Array) -> list[Array]:
    """Return the scores of the pairs 00, 01, 10, 11, (B, E) each, with -inf where a unary forbids an end."""
    pairs = ((a, b) for a in (0, 1) for b in (0, 1))
    if (unary > -np.inf).all():
        return [tables[:, :, a, b] for a, b in pairs]
    allowed = unary[:, edges] > -np.inf  # (B, E, 2 ends, 2 labels)
    return [np.where(allowed[:, :, 0, a] & allowed[:, :, 1, b], tables[:, :, a, b], -np.inf) for a, b in pairs]


def _assemble(unary: Array, tables: Array, edges: Array) -> Terms:
    """Convert unaries (B, S, 2) and attractive tables (B, E, 2, 2) to biases and links.

    A finite table equals two biases minus half of ``s00 + s11 - s01 - s10`` wherever the labels differ.  If a score is
    -inf, biases express the other scores (at most three).  A forbidden pair becomes an infinite link, or an infinite
    bias if it determines the label of an end.
    """
    s00, s01, s10, s11 = _allowed_scores(unary, tables, edges)
    ok00, ok01, ok10, ok11 = (s > -np.inf for s in (s00, s01, s10, s11))
    whole = ok00 & ok01 & ok10 & ok11
    half = np.maximum(s00 + s11 - s01 - s10, 0.0) / 2
    bias = unary[:, :, 1] - unary[:, :, 0]
    first_end, second_end = ((np.arange(len(bias))[:, None] * bias.shape[1] + edges[:, k]).ravel() for k in (0, 1))
    if whole.all():
        np.add.at(bias.reshape(-1), first_end, ((s10 + s11 - s00 - s01) / 2).ravel())
        np.add.at(bias.reshape(-1), second_end, ((s01 + s11 - s00 - s10) / 2).ravel())
        return Terms(bias, half, half)
    first = np.select(
        [whole, ok00 & ok10, ok01 & ok11, ok00 & ok11], [(s10 + s11 - s00 - s01) / 2, s10 - s00, s11 - s01, s11 - s00]
    )
    second = np.select([whole, ok00 & ok01, ok10 & ok11], [(s01 + s11 - s00 - s10) / 2, s01 - s00, s11 - s10])
    first += np.where(ok00 | ok01, 0.0, np.inf) - np.where(ok10 | ok11, 0.0, np.inf)
    second += np.where(ok00 | ok10, 0.0, np.inf) - np.where(ok01 | ok11, 0.0, np.inf)
    np.add.at(bias.reshape(-1), first_end, first.ravel())
    np.add.at(bias.reshape(-1), second_end, second.ravel())
    return Terms(bias, np.select([whole, ok10], [half, 0.0], np.inf), np.select([whole, ok01], [half, 0.0], np.inf))


def _expand(model: Model, state: _State, images: Array, alpha: int) -> None:
    """Change sites of some images to label ``alpha`` by the optimal move, if it improves the score."""
    labels, edges = state.labels[images], model.edges
    unary = model.unary[images].astype(np.float64)
    choices = np.stack([np.take_along_axis(unary, labels[:, :, None], axis=2)[:, :, 0], unary[:, :, alpha]], axis=2)
    tables = np.empty((len(images), len(edges), 2, 2))  # axes: keep the label or change to alpha
    everywhere = np.full(len(edges), alpha)
    for k, n in enumerate(images.tolist()):
        for a, y in enumerate((labels[k, edges[:, 0]], everywhere)):
            for b, z in enumerate((labels[k, edges[:, 1]], everywhere)):
                tables[k, :, a, b] = pair_scores(model, n, y, z)
    with np.errstate(invalid="ignore"):
        terms = _assemble(choices, tables, edges)
    change = best_labels(terms.bias, edges, terms.ahead, terms.back)
    before = choices[:, :, 0].sum(axis=1) + tables[:, :, 0, 0].sum(axis=1)
    helps = (_binary_scores(choices, tables, edges, change) > before) & change.any(axis=1)
    state.labels[images] = np.where(helps[:, None] & (change == 1), alpha, labels)
    state.failed[images] = np.where(helps, 0, state.failed[images] + 1)


def _binary_scores(unary: Array, tables: Array, edges: Array, labels: Array) -> Array:
    """Return the scores (B,) of labels (B, S) in {0, 1}."""
    kind = 2 * labels[:, edges[:, 0]] + labels[:, edges[:, 1]]
    pairs = np.take_along_axis(tables.reshape(*kind.shape, 4), kind[:, :, None], axis=2)[:, :, 0]
    return np.take_along_axis(unary, labels[:, :, None], axis=2)[:, :, 0].sum(axis=1) + pairs.sum(axis=1)


def _check_expandable(problem: Problem) -> None:
    model, potentials = problem.model, problem.potentials
    if model.potts and potentials.pairwise.least_weight >= 0:
        return
    allowed = potentials.unary > -np.inf
    shared = allowed.all() and len(model.tables) == len(model.features) == 1
    n_labels = potentials.n_labels
    per_check = max(1, ENTRIES_AT_A_TIME // n_labels**2)
    for n in range(1 if shared else potentials.n_images):
        for k in range(0, len(model.edges), per_check):
            edges = np.arange(k, min(k + per_check, len(model.edges)))
            ends = allowed[n, model.edges[edges]]  # (e, 2 ends, L)
            tables = edge_tables(model, n, edges)
            tables[~(ends[:, 0, :, None] & ends[:, 1, None, :])] = np.nan
            if np.isneginf(tables).any():
                e = edges[np.isneginf(tables).any(axis=(1, 2)).argmax()]
                raise InputError(
                    f"graph_cut does not support forbidden pairs (-inf) with more than two labels,"
                    f" but {_edge_name(problem, int(e))} has one"
                )
            slack = _rounding(problem, tables)
            for alpha in range(n_labels):
                column, row = tables[:, :, alpha, None], tables[:, alpha, None, :]
                bad = tables[:, alpha, alpha, None, None] + tables - column - row < -slack
                if bad.any():
                    e, beta, gamma = np.argwhere(bad)[0].tolist()
                    where = _edge_name(problem, int(edges[e]))
                    raise InputError(
                        f"graph_cut with more than two labels needs t[α, α] + t[β, γ] >= t[β, α] + t[α, γ] in every"
                        f" pairwise table t, which fails on {where} for α = {alpha}, β = {beta}, γ = {gamma}"
                    )


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
