"""Likelihood operations: their inputs (`Scores`), their outputs (`Losses`) and the division of the work into jobs.

The inputs are unary scores and pairwise scores; a pairwise score is a sum of features times label tables.  The outputs
are a loss per site or block and its derivatives with respect to the scores.  A log-linear model adds one matrix product
before (features times weights) and one after; a network computes the scores directly.

Every backend has three functions.  Each call processes one `Part`; `Likelihoods` runs them over the whole input:

- ``site_likelihood`` computes the loss of sites given their neighbours' labels, and its *residual*: the derivative with
  respect to the local scores.  One sample (the true labels) gives pseudolikelihood, several the consistent objective.
- ``block_likelihood`` does the same for blocks (sets of sites solved jointly).  It also computes the derivative with
  respect to the pairwise scores of edges inside blocks.
- ``pair_gradient`` computes the derivative with respect to the pairwise scores of all other edges, from the residuals.

In the code, *gradient* is the derivative with respect to the pairwise scores.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from locpmap.arrays import namespace
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.cache import placed_once
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.model import Array
from locpmap.kernels.threads import Threads

JOB_SITES = 1 << 16  # sites per job on the CPU


class Scores(NamedTuple):
    """Scores of N images on one graph (S sites, E edges, L labels); contiguous and read-only.

    The score of labels (a, b) on edge e of image n is ``Σ_f features[n, e, f] · tables[n, group[e], f, a, b]``.  In a
    Potts model it is ``features[n, e, 0]`` if a = b, else 0.  An axis of length 1 is shared by all images or edges.
    """

    unary: Array  # (N, S, L) float32 or float64
    features: Array  # (1|N, 1|E, F), the same precision
    tables: Array  # (1|N, G, F, L, L), the same precision; empty in a Potts model
    potts: bool
    own_tables: bool  # True if every edge has its own table: G = E and ``group`` is 0, 1, .., E - 1
    group: Array  # (E,) int32: the table of each edge
    edges: Array  # (E, 2) int32
    indptr: Array  # (S + 1,) int64: the slots of site i, indptr[i]:indptr[i + 1], in the next arrays
    neighbour: Array  # (2E,) int32: the neighbour at a slot
    edge: Array  # (2E,) int32: the edge to it
    end: Array  # (2E,) uint8: 0 if site i is the edge's first end, else 1

    @property
    def per_edge(self) -> bool:
        """Whether every edge has its own pairwise scores, so that derivatives are stored per image and edge."""
        return self.potts or self.own_tables

    def new_gradient(self) -> Array:
        """Return zeros for the derivative in the pairwise scores: (N, E) for Potts, else (1|N, G, F, L, L)."""
        n_images = len(self.unary) if self.per_edge else 1
        shape = (n_images, len(self.edges)) if self.potts else (n_images, *self.tables.shape[1:])
        return _zeros(self.unary, shape, self.per_edge)


class Part(NamedTuple):
    """The range of one call: images lo..hi, and sites, edges or blocks (of one family) begin..stop; ends excluded."""

    lo: int
    hi: int
    begin: int
    stop: int


class Losses(NamedTuple):
    """Losses and their derivatives with respect to the scores."""

    value: Array  # (N, S) per site, or (N, B) per block
    residual: Array  # (N, S, M, L) by the local scores given sample m; the sum over m is the unary derivative
    gradient: Any  # None, or the shape of `Scores.new_gradient`; sums over images and edges are in double precision


class Likelihoods:
    """The likelihood operations of every backend, implemented with its three functions of ranges."""

    name: str
    device: Any  # None for NumPy arrays
    threads: Threads = Threads(1)

    @property
    def likelihoods(self) -> str:
        """Name of the folder of `kernels` that contains the three functions."""
        return self.name

    def close(self) -> None:
        self.threads.close()

    def site_losses(self, scores: Scores, labels: Array, samples: Array, weights: Array) -> Losses:
        """Compute the loss ``-weights · log mean_m p(label | sample m)`` of every site, and its residual.

        The derivative with respect to the pairwise scores is not computed; see `pair_gradient`.
        ``labels`` (N, S) and ``samples`` (N, S, M) are -1 at void sites, which have loss 0 and do not influence their
        neighbours.  ``weights`` is (1|N, 1|S).
        """
        n_images, n_sites, n_labels = scores.unary.shape
        value = _zeros(scores.unary, (n_images, n_sites))
        residual = _zeros(scores.unary, (n_images, n_sites, samples.shape[2], n_labels))
        losses = Losses(value, residual, None)
        kernel = kernel_of(self.likelihoods, "site_likelihood")
        jobs = self._jobs(n_images, n_sites, n_sites)
        self.threads.map(lambda part: kernel(scores, labels, samples, weights, losses, part), jobs)
        return losses

    def pair_gradient(self, scores: Scores, samples: Array, residual: Array, block_of: Array | None = None) -> Array:
        """Compute the derivative in the pairwise scores from the residuals, except for edges inside a block."""
        kernel = kernel_of(self.likelihoods, "pair_gradient")
        n_images, n_sites = scores.unary.shape[:2]
        jobs = self._jobs(n_images, len(scores.edges), n_sites)
        return self._summed(
            scores, lambda gradient, part: kernel(scores, samples, residual, block_of, gradient, part), jobs
        )

    def block_losses(self, scores: Scores, plan: BlockPlan, labels: Array, weights: Array) -> Losses:
        """Compute the loss ``-weights · log p(labels of the block | all other labels)`` of every block.

        Its residual and its derivative with respect to the pairwise scores are computed too.
        ``weights`` is (1|N,).  Void sites (label -1) are removed from their block; a chain is split there.
        """
        kernel = kernel_of(self.likelihoods, "block_likelihood")
        n_images, n_sites, n_labels = scores.unary.shape
        value = _zeros(scores.unary, (n_images, len(plan.joint)))
        total, gradient = None, None
        # A family contains every site once, so its residuals fit into one array over the sites.
        for block_of, placed in zip(plan.block_of, placed_once(plan.block_of, self.device), strict=True):
            residual = _zeros(scores.unary, (n_images, n_sites, 1, n_labels))

            def add(gradient: Array, part: Part, residual: Array = residual) -> None:
                kernel(scores, plan, labels, weights, Losses(value, residual, gradient), part)

            first, last = int(block_of.min()), int(block_of.max()) + 1
            inside = self._summed(scores, add, self._jobs(n_images, last - first, n_sites, first))
            between = self.pair_gradient(scores, labels[:, :, None], residual, placed)
            total = residual if total is None else total + residual
            gradient = inside + between if gradient is None else gradient + inside + between
        return Losses(value, total, gradient)

    def _summed(self, scores: Scores, run: Callable[[Array, Part], None], jobs: list[tuple[Part]]) -> Array:
        """Sum the derivatives of all jobs in a fixed order; with per-edge scores, jobs write to disjoint entries."""
        gradient = scores.new_gradient()
        if scores.per_edge or len(jobs) == 1:
            self.threads.map(lambda part: run(gradient, part), jobs)
            return gradient

        def gradient_of(part: Part) -> Array:
            own = scores.new_gradient()
            run(own, part)
            return own

        for own in self.threads.map(gradient_of, jobs):
            gradient += own
        return gradient

    def _jobs(self, n_images: int, n_items: int, n_sites: int, first: int = 0) -> list[tuple[Part]]:
        """Divide the work by the sizes alone, so that sums do not depend on the threads; on a GPU, return one job."""
        most = JOB_SITES if self.device is None else n_images * n_sites
        images, pieces = max(1, most // max(n_sites, 1)), max(1, -(-n_sites // max(most, 1)))
        bounds = [first + n_items * p // pieces for p in range(pieces + 1)]
        starts = range(0, n_images, images)
        return [(Part(lo, min(lo + images, n_images), *span),) for lo in starts for span in pairwise(bounds)]


def _zeros(like: Array, shape: tuple[int, ...], single: bool = True) -> Array:
    """Return zeros in the precision of ``like``, or in double precision."""
    xp = namespace(like)
    where = {} if xp.__name__ == "numpy" else {"device": like.device}
    return xp.zeros(shape, dtype=like.dtype if single else xp.float64, **where)
