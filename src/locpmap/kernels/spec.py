"""The contract between inference and the kernels of a backend; it is the same on every device.

A backend is a class with the methods of `Kernels`; inference and learning call a backend through these methods only.
An operation performs n *sweeps* (a sweep updates every site once) or draws a span of samples, for a batch of images.

The backend chooses the layout of its arrays and specialised implementations (for two labels, Potts weights or blocks).
It also divides the work among threads or GPU launches, and decides when to synchronise with the device.

- Results agree with the reference implementation (`kernels.reference`) up to rounding.  They do not depend on the
  division of work: all noise is a function of the seed and the indices of image, sample, site and label.
- `Drawn`, `Plan`, `Messages` and totals are opaque.  Callers use only the members declared here and pass the objects
  back to the backend that created them.
- An operation that a backend does not support raises a `BackendError`.

Shapes: N images, S sites, E edges, L labels, R samples; ``1|N`` is an axis of length N, or of length 1 if shared by all
images.  Ranges ``lo..hi`` and ``begin..stop`` exclude their ends.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from locpmap.kernels.block_plan import BlockPlan, DrawPlan
from locpmap.kernels.fields import Fields
from locpmap.kernels.likelihood import Losses, Scores
from locpmap.kernels.model import NOTHING, Array, GridWindow, Model, VolumeWindow
from locpmap.kernels.perturbation import Perturbation

Work = Callable[["Span"], tuple[Array, Array]]  # from a part of a span to labels (n, S, R) and sweeps (n, R)


class Structure(Hashable, Protocol):
    """A grid or a graph: edges and neighbour lists on the host."""

    def edges(self) -> Array:
        """Return the sites at both ends of every edge, (E, 2)."""

    def adjacency(self) -> Any:
        """Return neighbour lists with attributes ``indptr`` and ``neighbour`` (see `Model`)."""


class ModelView(Protocol):
    """A model as backends read it.  Flat arrays and neighbour lists are built on first access."""

    @property
    def unary(self) -> Array:
        """Unary scores (N, S, L), on the device of the kernels."""

    @property
    def flat(self) -> Model:
        """The model as flat arrays; built on first access."""

    @property
    def structure(self) -> Structure:
        """The grid or graph."""

    @property
    def potts(self) -> bool:
        """Whether every pairwise score is a weight if the labels are equal, else 0."""

    @property
    def window(self) -> GridWindow | None:
        """The grid, with any number of neighbours; None for a graph."""

    @property
    def grid(self) -> GridWindow | None:
        """The grid if the graph is a 4-connected grid, else None."""

    @property
    def volume(self) -> VolumeWindow | None:
        """The volume; None for a grid or a graph."""

    @property
    def coupled(self) -> bool:
        """Whether any pairwise score differs from 0; always True for models with tables."""

    @property
    def least_weight(self) -> float:
        """The smallest Potts weight; NaN if the model is not Potts."""

    @property
    def cache(self) -> dict[Any, Any]:
        """Values that a backend caches for the lifetime of the model."""

    def with_unary(self, unary: Array) -> Self:
        """Return the same model with other unaries (N, S, L)."""

    def step_weights(self, dtype: Any) -> tuple[Array, ...]:
        """Return the Potts weights of each step of a volume, (1|N, 1|E)."""

    def direction_weights(self, dtype: Any) -> tuple[Array, Array]:
        """Return the Potts weights of a grid's horizontal edges (1|N, H, W-1) and vertical edges (1|N, H-1, W)."""


class Span(NamedTuple):
    """Samples first..first + n_samples of images lo..hi."""

    lo: int
    hi: int
    first: int
    n_samples: int


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks: sets of sites that a climb updates jointly.  The plan is built on first access."""

    named: Any  # the user's option, for example "rows+columns"
    make_plan: Callable[[], BlockPlan]

    @cached_property
    def plan(self) -> BlockPlan:
        """The blocks as flat arrays."""
        return self.make_plan()


@dataclass(frozen=True, eq=False)
class Climb:
    """Options of sampling by *climbs*: greedy coordinate ascents on perturbed scores to local maxima."""

    perturbation: Perturbation
    start: int  # RANDOM, PERTURBED or GIVEN of `kernels.perturbation`
    given: Array | None  # (N, S) labels if start is GIVEN
    max_sweeps: int
    first_image: int = 0
    lazy: bool = False  # whether the noise uses the lazy scheme of `reference.noise`
    blocks: Blocks | None = None  # None to update single sites
    fields: Fields | None = None  # error fields, which each sample adds to the unaries
    clocks: bool = False  # whether lines have noise on their joint labellings, instead of on their sites


class Drawn(Protocol):
    """Samples in the backend's own layout."""

    @property
    def sweeps(self) -> list[Array]:
        """The number of sweeps of every sample, as arrays of any shape."""

    def labels(self) -> Array:
        """Return the labels (hi - lo, S, n_samples) of the span."""


class Plan(Protocol):
    """The schedule of message passing on one graph."""

    @property
    def exact(self) -> bool:
        """Whether one sweep computes the exact messages (the graph has no cycle)."""


class Messages(Protocol):
    """The messages of all images, and their progress."""

    @property
    def launched(self) -> int:
        """Number of sweeps requested so far; does not wait for the device."""

    @property
    def sweeps(self) -> int:
        """Number of sweeps performed so far."""

    @property
    def converged(self) -> bool:
        """Whether another sweep would change no message by more than the tolerance."""


@dataclass
class Chain:
    """One Markov chain per image; ``labels`` and ``totals`` are updated in place."""

    labels: Array  # (N, S)
    key: tuple[int, int]  # of the noise
    first_image: int  # index of image 0 in the whole batch, for the noise
    totals: Array | None = None  # (N, S, L)
    adds: int = NOTHING  # what a counted sweep adds to the totals: NOTHING, VOTES or CONDITIONAL
    start_temperature: float = 1.0
    cooling: float = 1.0  # factor on the temperature after each sweep
    first_counted: int = 1  # number (from 1) of the first counted sweep; then every `thin`-th counts
    thin: int = 1
    sweeps: int = 0  # performed so far
    draws: DrawPlan | None = None  # blocks to draw jointly; None to draw single sites
    clusters: bool = False  # whether to draw clusters of equal labels (Swendsen-Wang)

    def counted(self, n_sweeps: int) -> int:
        """Return how many of the next ``n_sweeps`` sweeps are counted."""
        return self._counted_of(self.sweeps + n_sweeps) - self._counted_of(self.sweeps)

    def _counted_of(self, sweeps: int) -> int:
        return max(0, sweeps - self.first_counted + self.thin) // self.thin

    @property
    def temperature(self) -> float:
        """The temperature of the next sweep."""
        return self.start_temperature * self.cooling**self.sweeps


class Advanced(NamedTuple):
    """The outcome of a call that performs sweeps."""

    n_sweeps: int  # sweeps performed until convergence, at most as many as requested
    settled: bool  # whether it converged


class Kernels(Protocol):
    """The kernels of one backend on one device, for the duration of one inference."""

    @property
    def name(self) -> str:
        """The name of the backend."""

    @property
    def device(self) -> str | None:
        """The device of input and output tensors; None for NumPy arrays."""

    def close(self) -> None:
        """Stop the threads, if any."""

    def sweeps_per_step(self, model: ModelView) -> int:
        """Return how many sweeps to request per call: many if a call waits for the device."""

    def precision(self, model: ModelView) -> Any:
        """Return the dtype of messages, and of beliefs in models with tables."""

    def score(self, model: ModelView, labels: Array) -> Array:
        """Return the score θ(y) of labels (N, S), as (N,) float64.  O(S + E) per image."""

    # Samples.

    def climb(self, model: ModelView, climb: Climb, span: Span) -> Drawn:
        """Draw samples: perturb the unaries and climb from the start labels to a local maximum."""

    def add_fields(self, model: ModelView, climb: Climb, span: Span) -> Array:
        """Return the unaries (N, S, L) with the error fields of the span's first sample; images lo..hi are filled."""

    def perturb_and_max_product(
        self, model: ModelView, plan: Any, perturbation: Perturbation, max_sweeps: int, first_image: int, span: Span
    ) -> Drawn:
        """Draw samples: perturb the unaries, pass max-product messages and decode them."""

    def draw_by(self, work: Work, span: Span) -> Drawn:
        """Draw samples with a host function that is called for disjoint parts of the span."""

    def start_totals(self, model: ModelView, kind: str, max_samples: int, *, fields: bool = False) -> Any:
        """Return empty totals for up to ``max_samples``: "votes" (counts) or "conditional" (probabilities).

        ``fields`` tells that the samples have error fields, which may change the size of a round.
        """

    def round_size(self, model: ModelView, totals: Any, most: int) -> tuple[int, int]:
        """Return the number of samples (at most ``most``) and of images that fit into memory in one round."""

    def tally(self, model: ModelView, drawn: Any, totals: Any, begin: int, stop: int) -> None:
        """Add samples at sites begin..stop to the totals; if this raises an error, nothing has been added.

        A backend may release the samples.
        """

    def read_totals(self, model: ModelView, totals: Any, n_samples: int) -> tuple[Array, Array]:
        """Return probabilities (N, S, L), in the dtype of the unaries, and the most probable labels (N, S)."""

    # Sweeps.

    def gibbs(self, model: ModelView, chain: Chain, n_sweeps: int, *, keep: bool = False) -> Array:
        """Advance a chain.  Return its labels after each of the K counted sweeps, (K, N, S); (0, N, S) without keep."""

    def gibbs_chains(self, model: ModelView, chains: list[Chain], n_sweeps: int, *, keep: bool = False) -> list[Array]:
        """Advance several chains of one model, in parallel if possible; return what `gibbs` returns for each."""

    def mean_field(self, model: ModelView, beliefs: Array, marks: Array, tolerance: float, n_sweeps: int) -> Advanced:
        """Advance beliefs (N, S, L) and marks (N, S), at first `model.UNVISITED`, in place until convergence."""

    def mean_field_bound(self, model: ModelView, beliefs: Array) -> Array:
        """Return the lower bound of log Z, (N,), for normalised beliefs in double precision."""

    # Cuts.

    def expand(self, model: ModelView, labels: Array, alpha: int, images: Array) -> Array:
        """Change any sites of some images to ``alpha`` by the best such move, in ``labels`` (N, S), if it has a gain.

        Return the gains (len(images),), NaN for images in which the labels and all moves are forbidden.  Pairwise
        scores must satisfy the condition of `GraphCut`.  Calls for one image can be made from several threads.
        """

    # Messages.

    def plan_messages(self, model: ModelView, schedule: str, damping: float, tolerance: float) -> Plan:
        """Return the schedule: "coloured", "sequential" (breadth-first) or "auto" (sequential if that is exact)."""

    def start_messages(self, model: ModelView, plan: Any, *, maximise: bool = False, n_forests: int = 0) -> Messages:
        """Return uniform messages: sum-product, max-product, or tree-reweighted if ``n_forests`` is not 0."""

    def send(self, model: ModelView, messages: Any, n_sweeps: int) -> None:
        """Perform ``n_sweeps`` sweeps, or fewer if the messages converge."""

    def log_beliefs(self, model: ModelView, messages: Any) -> tuple[Array, Array]:
        """Return normalised log beliefs (N, S, L) and normalisers (N, S).  Afterwards no messages can be sent."""

    def bethe_edges(self, model: ModelView, messages: Any, beliefs: Array) -> Array:
        """Return the terms of edges in the Bethe log partition, summed by the first site of the edge, (N, S)."""

    def decode_messages(self, model: ModelView, messages: Any) -> Array:
        """Return labels (N, S) decoded from max-product messages, site by site."""

    def forest_log_partitions(self, model: ModelView, messages: Any, *, maximise: bool = False) -> Array:
        """Return log Z or the best score of each of the K spanning forests of reweighted messages, (N, K) float64."""

    # Likelihoods.

    def site_losses(self, scores: Scores, labels: Array, samples: Array, weights: Array) -> Losses:
        """Return losses and residuals of sites given M samples of their neighbours' labels (see `likelihood`)."""

    def pair_gradient(self, scores: Scores, samples: Array, residual: Array, block_of: Array | None = None) -> Array:
        """Return the derivative of the losses with respect to the pairwise scores."""

    def block_losses(self, scores: Scores, plan: BlockPlan, labels: Array, weights: Array) -> Losses:
        """Return losses, residuals and pairwise derivatives of blocks given all other labels."""
