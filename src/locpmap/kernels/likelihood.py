"""Scores of a labelled graph, as the likelihood operations read them, and the division of their work into jobs.

Likelihoods act on scores: unary scores of every label, and pairwise scores as features times label tables.  They return
a loss per site or block and its derivatives by the scores.  A log-linear model is a matrix product before (features
times weights) and one after; a network supplies the scores itself.

Every backend has three functions, each of which covers a `Part`; `Likelihoods` runs them over everything:

- ``site_likelihood``: the loss of sites given their neighbours' labels and its *residual*, the derivative by the local
  scores.  One sample (the true labels) is pseudolikelihood, several samples are the consistent objective.
- ``block_likelihood``: the same for blocks of sites that are solved together, and the derivative by the pairwise scores
  of the edges inside blocks.
- ``pair_slope``: the derivative by the pairwise scores of all other edges, from the residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from locpmap.arrays import namespace
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.cpu.twins import twin
from locpmap.kernels.model import Array
from locpmap.kernels.threads import Threads

JOB_SITES = 1 << 16  # of one job on the CPU


class Scores(NamedTuple):
    """Scores of N images on one graph (S sites, E edges, L labels); contiguous and read-only.

    The score of labels (a, b) on edge e of image n is ``Σ_f features[n, e, f] · tables[n, group[e], f, a, b]`` or, in
    a Potts model, ``features[n, e, 0]`` where a = b.  Axes of length 1 are shared by all images or edges.
    """

    unary: Array  # (N, S, L) float32 or float64
    features: Array  # (1|N, 1|E, F), the same precision
    tables: Array  # (1|N, G, F, L, L), the same precision; empty in a Potts model
    potts: bool
    own_tables: bool  # every edge has a table of its own: G = E, and ``group`` counts up
    group: Array  # (E,) int32: which of the G tables an edge uses
    edges: Array  # (E, 2) int32
    indptr: Array  # (S + 1,) int64: site i's neighbours are at indptr[i]:indptr[i + 1] of
    neighbour: Array  # (2E,) int32: the site at the other end
    edge: Array  # (2E,) int32: the edge between
    end: Array  # (2E,) uint8: 0 where site i is the edge's first end

    @property
    def per_edge(self) -> bool:
        """Whether every edge has pairwise scores of its own, so that slopes are kept per image and edge."""
        return self.potts or self.own_tables

    def new_slope(self) -> Array:
        """Zeros for the derivative by the pairwise scores: weights (N, E), or tables (1|N, G, F, L, L)."""
        n_images = len(self.unary) if self.per_edge else 1
        shape = (n_images, len(self.edges)) if self.potts else (n_images, *self.tables.shape[1:])
        return _zeros(self.unary, shape, self.per_edge)


class Part(NamedTuple):
    """What one call covers: images lo..hi, and sites, edges or blocks (of one family) begin..stop."""

    lo: int
    hi: int
    begin: int
    stop: int


class Losses(NamedTuple):
    """Losses and their derivatives."""

    value: Array  # (N, S) of sites, or (N, B) of blocks
    residual: Array  # (N, S, M, L) by the local scores given each sample; over m they add up to those by the unary
    slope: Any  # None, or as of `Scores.new_slope`, summed in double precision where it is shared


class Likelihoods:
    """The likelihood operations of a backend: the same for all, over the three functions of ranges."""

    name: str
    device: Any  # None for NumPy arrays
    threads: Threads = Threads(1)

    @property
    def likelihoods(self) -> str:
        """The folder of the three functions."""
        return self.name

    def site_losses(self, scores: Scores, labels: Array, samples: Array, weights: Array) -> Losses:
        """Return ``-weights · log mean_m p(label | sample m)`` of every site, without the slope.

        ``labels`` (N, S) and ``samples`` (N, S, M) are -1 where void: such a site adds nothing and is nobody's
        neighbour.  ``weights`` is (1|N, 1|S).
        """
        n_images, n_sites, n_labels = scores.unary.shape
        value = _zeros(scores.unary, (n_images, n_sites))
        residual = _zeros(scores.unary, (n_images, n_sites, samples.shape[2], n_labels))
        losses = Losses(value, residual, None)
        kernel = twin(self.likelihoods, "site_likelihood")
        jobs = self._jobs(n_images, n_sites, n_sites)
        self.threads.map(lambda part: kernel(scores, labels, samples, weights, losses, part), jobs)
        return losses

    def pair_slope(self, scores: Scores, samples: Array, residual: Array, block_of: Array | None = None) -> Array:
        """Return the derivative by the pairwise scores; with ``block_of`` (S,), of edges between blocks alone."""
        kernel = twin(self.likelihoods, "pair_slope")
        n_images, n_sites = scores.unary.shape[:2]
        jobs = self._jobs(n_images, len(scores.edges), n_sites)
        return self._summed(scores, lambda slope, part: kernel(scores, samples, residual, block_of, slope, part), jobs)

    def block_losses(self, scores: Scores, plan: BlockPlan, labels: Array, weights: Array) -> Losses:
        """Return ``-weights · log p(labels of the block | labels around it)`` of every block, with the slope.

        ``weights`` is (1|N,).  Void sites (-1) are out of their block, which splits a chain there.
        """
        kernel = twin(self.likelihoods, "block_likelihood")
        n_images, n_sites, n_labels = scores.unary.shape
        value = _zeros(scores.unary, (n_images, len(plan.joint)))
        total, slope = None, None
        # Each family covers every site once, so that its residuals are those of sites.
        for block_of in plan.block_of:
            residual = _zeros(scores.unary, (n_images, n_sites, 1, n_labels))

            def add(slope: Array, part: Part, residual: Array = residual) -> None:
                kernel(scores, plan, labels, weights, Losses(value, residual, slope), part)

            first, last = int(block_of.min()), int(block_of.max()) + 1
            inside = self._summed(scores, add, self._jobs(n_images, last - first, n_sites, first))
            between = self.pair_slope(scores, labels[:, :, None], residual, block_of)
            total = residual if total is None else total + residual
            slope = inside + between if slope is None else slope + inside + between
        return Losses(value, total, slope)

    def _summed(self, scores: Scores, run: Callable[[Array, Part], None], jobs: list[tuple[Part]]) -> Array:
        """Add up the slopes of all jobs in one order; jobs write to separate entries where edges have their own."""
        slope = scores.new_slope()
        if scores.per_edge or len(jobs) == 1:
            self.threads.map(lambda part: run(slope, part), jobs)
            return slope

        def slope_of(part: Part) -> Array:
            own = scores.new_slope()
            run(own, part)
            return own

        for own in self.threads.map(slope_of, jobs):
            slope += own
        return slope

    def _jobs(self, n_images: int, n_items: int, n_sites: int, first: int = 0) -> list[tuple[Part]]:
        """Cut by the data alone, so that sums do not depend on the threads; a GPU divides its work itself."""
        most = JOB_SITES if self.device is None else n_images * n_sites
        images, pieces = max(1, most // max(n_sites, 1)), max(1, -(-n_sites // max(most, 1)))
        bounds = [first + n_items * p // pieces for p in range(pieces + 1)]
        starts = range(0, n_images, images)
        return [(Part(lo, min(lo + images, n_images), *span),) for lo in starts for span in pairwise(bounds)]


def _zeros(like: Array, shape: tuple[int, ...], single: bool = True) -> Array:
    """Zeros in the precision of an array, or in double precision."""
    xp = namespace(like)
    where = {} if xp.__name__ == "numpy" else {"device": like.device}
    return xp.zeros(shape, dtype=like.dtype if single else xp.float64, **where)
