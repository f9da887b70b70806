"""The contract of a backend: what inference may ask of kernels, the same on every device.

An operation advances *n sweeps*, or draws a span of samples, everywhere.  How arrays are laid out, which fast path
serves (bits, Potts contests, lines, blocks), how the work is shared among threads or launches, and how often a device
is waited for: all of that is the backend's own business.  What a backend returns as its own (`Drawn`, `Totals`, `Plan`,
`Messages`) goes back to the same backend and is never looked into.  An operation that a backend lacks raises a
`BackendError` of one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.likelihood import Losses, Scores
from locpmap.kernels.model import NOTHING, Array, GridWindow, Model
from locpmap.kernels.perturbation import Perturbation

Work = Callable[["Span"], tuple[Array, Array]]


class Structure(Hashable, Protocol):
    """A grid or a graph, as far as kernels need it: lists on the host."""

    def edges(self) -> Array:
        """Return both ends of every edge, (E, 2)."""

    def adjacency(self) -> Any:
        """Return neighbour lists with ``indptr`` and ``neighbour``."""


class ModelView(Protocol):
    """A model as backends see it: scores at once, lists of edges only when asked for."""

    @property
    def unary(self) -> Array:
        """Scores (N, S, L), where the kernels run."""

    @property
    def flat(self) -> Model:
        """The flat arrays of any model; built when first needed."""

    @property
    def structure(self) -> Structure:
        """The graph."""

    @property
    def potts(self) -> bool:
        """Whether the pairwise score is a weight where labels agree."""

    @property
    def grid(self) -> GridWindow | None:
        """The grid, where the graph is one with 4 neighbours."""

    @property
    def coupled(self) -> bool:
        """Whether neighbours have a say."""

    @property
    def least_weight(self) -> float:
        """The smallest Potts weight; not a number unless the model is Potts."""

    @property
    def cache(self) -> dict[Any, Any]:
        """What a backend keeps for as long as the model lives."""

    def direction_weights(self, dtype: Any) -> tuple[Array, Array]:
        """Return the Potts weights of a 4-connected grid to the right (1|N, H, W-1) and down (1|N, H-1, W)."""


class Span(NamedTuple):
    """Samples first .. first + n_samples of images lo .. hi."""

    lo: int
    hi: int
    first: int
    n_samples: int


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of sites that a climb improves together: what the caller named, and the plan, made when needed."""

    named: Any  # such as "rows+columns"
    make_plan: Callable[[], BlockPlan]

    @cached_property
    def plan(self) -> BlockPlan:
        """The blocks as flat arrays."""
        return self.make_plan()


@dataclass(frozen=True, eq=False)
class Climb:
    """How samples are drawn by climbing."""

    perturbation: Perturbation
    start: int
    given: Array | None  # (N, S) labels, for a start at given ones
    max_sweeps: int
    first_image: int = 0
    lazy: bool = False  # whether the noise is of the lazy scheme
    blocks: Blocks | None = None  # None: single sites


class Drawn(Protocol):
    """Samples in the backend's own layout."""

    @property
    def sweeps(self) -> list[Array]:
        """The sweeps of every climb, in arrays of any shape."""

    def labels(self) -> Array:
        """Return the labels (hi - lo, S, n_samples) of the span."""


class Plan(Protocol):
    """How messages are passed on one graph."""

    @property
    def exact(self) -> bool:
        """Whether one sweep says all there is to say."""


class Messages(Protocol):
    """Messages on the way."""

    @property
    def launched(self) -> int:
        """The sweeps asked for so far, without waiting for a device."""

    @property
    def sweeps(self) -> int:
        """The sweeps made so far."""

    @property
    def converged(self) -> bool:
        """Whether no site has anything new to say."""


@dataclass
class Chain:
    """A Markov chain per image; ``labels`` and ``totals`` change in place."""

    labels: Array  # (N, S)
    key: tuple[int, int]
    first_image: int
    totals: Array | None = None  # (N, S, L)
    adds: int = NOTHING  # what a sweep that counts adds to the totals
    start_temperature: float = 1.0
    cooling: float = 1.0  # by which the temperature is multiplied after each sweep
    first_counted: int = 1  # sweeps, numbered from 1, that count: this one, and then every `thin`-th
    thin: int = 1
    sweeps: int = 0  # made so far

    def counted(self, n_sweeps: int) -> int:
        """Return how many of the next sweeps count."""
        return self._counted_of(self.sweeps + n_sweeps) - self._counted_of(self.sweeps)

    def _counted_of(self, sweeps: int) -> int:
        return max(0, sweeps - self.first_counted + self.thin) // self.thin

    @property
    def temperature(self) -> float:
        """The temperature of the next sweep."""
        return self.start_temperature * self.cooling**self.sweeps


class Advanced(NamedTuple):
    """What a number of sweeps came to."""

    n_sweeps: int  # that changed anything
    settled: bool  # whether nothing is left to change


class Kernels(Protocol):
    """One backend on one device, for the length of one inference."""

    @property
    def name(self) -> str:
        """The backend's name."""

    @property
    def device(self) -> str | None:
        """The device of the tensors that it takes; None for NumPy arrays."""

    def close(self) -> None:
        """End the threads, if there are any."""

    def sweeps_per_step(self, model: ModelView) -> int:
        """Return how many sweeps to ask for at a time: where asking makes a device wait, many."""

    def precision(self, model: ModelView) -> Any:
        """Return the type of messages, and of beliefs of models with tables."""

    def score(self, model: ModelView, labels: Array) -> Array:
        """Return θ(y) of labels (N, S), as (N,) float64.  O(S + E)."""

    # Samples.

    def climb(self, model: ModelView, climb: Climb, span: Span) -> Drawn:
        """Perturb, start and climb to local maxima."""

    def perturb_and_max_product(
        self, model: ModelView, plan: Any, perturbation: Perturbation, max_sweeps: int, first_image: int, span: Span
    ) -> Drawn:
        """Perturb the unaries and decode max-product messages."""

    def draw_by(self, work: Work, span: Span) -> Drawn:
        """Draw by a function of the host that returns labels (n, S, R) and sweeps (n, R) of parts of a span."""

    def start_totals(self, model: ModelView, kind: str, max_samples: int) -> Any:
        """Return totals of "votes" or of "conditional" probabilities, for at most so many samples."""

    def round_size(self, model: ModelView, totals: Any, most: int) -> tuple[int, int]:
        """Return how many samples memory allows at a time, at most so many, and of how many images."""

    def tally(self, model: ModelView, drawn: Any, totals: Any, begin: int, stop: int) -> None:
        """Add up what was drawn at sites begin..stop: all of it or, in case of an error, nothing."""

    def read_totals(self, model: ModelView, totals: Any, n_samples: int) -> tuple[Array, Array]:
        """Return the probabilities (N, S, L), in the unaries' type, and the labels (N, S) that have the largest."""

    # Sweeps.

    def gibbs(self, model: ModelView, chain: Chain, n_sweeps: int, *, keep: bool = False) -> Array:
        """Advance a chain; return its labels after the sweeps that count, (K, N, S), or (0, N, S) if not kept."""

    def mean_field(self, model: ModelView, beliefs: Array, marks: Array, tolerance: float, n_sweeps: int) -> Advanced:
        """Advance beliefs (N, S, L) in place; marks (N, S) are `UNVISITED` at first, and 0 where nothing changed."""

    def mean_field_bound(self, model: ModelView, beliefs: Array) -> Array:
        """Return the lower bound of log Z, (N,), of normalised beliefs in double precision."""

    # Messages.

    def plan_messages(self, model: ModelView, schedule: str, damping: float, tolerance: float) -> Plan:
        """Plan the order in which sites send, by colour classes or along a forest; "auto": a forest if it is one."""

    def start_messages(self, model: ModelView, plan: Any, *, maximise: bool = False, n_forests: int = 0) -> Messages:
        """Start sum- or max-product messages, or reweighted ones by so many spanning forests."""

    def send(self, model: ModelView, messages: Any, n_sweeps: int) -> None:
        """Advance messages by so many sweeps, or until they have settled."""

    def log_beliefs(self, model: ModelView, messages: Any) -> tuple[Array, Array]:
        """Return normalised log beliefs (N, S, L) and their normalisers (N, S); no more messages can be sent."""

    def bethe_edges(self, model: ModelView, messages: Any, beliefs: Array) -> Array:
        """Return what the edges that begin at each site add to the Bethe log partition, (N, S)."""

    def decode_messages(self, model: ModelView, messages: Any) -> Array:
        """Return labels (N, S) decoded site by site from max-product messages."""

    def forest_log_partitions(self, model: ModelView, messages: Any) -> Array:
        """Return the log partition of every spanning forest under reweighted messages, (N, K) float64."""

    # Likelihoods.

    def site_losses(self, scores: Scores, labels: Array, samples: Array, weights: Array) -> Losses:
        """Return the losses of sites given samples of their neighbours' labels, and their residuals."""

    def pair_slope(self, scores: Scores, samples: Array, residual: Array, block_of: Array | None = None) -> Array:
        """Return the derivative of losses by the pairwise scores."""

    def block_losses(self, scores: Scores, plan: BlockPlan, labels: Array, weights: Array) -> Losses:
        """Return the losses of blocks given the labels around them, their residuals, and the slope."""
