"""Value and gradient of pseudolikelihood and composite likelihood over batches.

The value is the sum of ``-log p(y_block | rest)`` over all blocks (rows and columns are two families of blocks, and
both are summed) per labelled site, plus ``l2 / (2 n) · |w|²`` over all weights but the biases, n being the number of
labelled sites.  So l2 is 1 / C of scikit-learn's logistic regression.  Several processes work on a share of the images
each; their sums are those of one process but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, TooLargeError
from locpmap.graphs import Graph, Grid
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.block_plan import BlockPlan
from locpmap.learning.batches import VOID, Batch, share
from locpmap.learning.linear import mean_square, sums_of_groups, total
from locpmap.learning.parameters import Parameters
from locpmap.learning.processes import ALONE, Processes

MAX_JOINT = 1 << 20  # joint labellings of a block that is enumerated


@dataclass(frozen=True, eq=False)
class Objective:
    """Pseudolikelihood, or composite likelihood over ``blocks``; ``alone``: as if no site had neighbours.

    Made by :func:`make_objective`, which reads the data once.
    """

    parameters: Parameters
    batches: Sequence[Batch]  # of all processes
    kernels: Any
    scales: Array  # (P,) the root mean square of the feature behind each weight
    n_images: int
    n_sites: int  # labelled sites
    weight: float  # of labelled sites, added up
    l2: float
    blocks: Any = None
    alone: bool = False
    processes: Processes = ALONE
    _plans: dict[Grid | Graph, BlockPlan] = field(default_factory=dict)

    def on(self, batches: Sequence[Batch], l2: float | None = None, *, alone: bool = False) -> Objective:
        """Return the same objective on a part of the data."""
        counts = np.array([[b.n_images, b.n_sites, b.weight()] for b in batches]).sum(axis=0)
        return replace(
            self,
            batches=batches,
            n_images=int(counts[0]),
            n_sites=int(counts[1]),
            weight=float(counts[2]),
            l2=self.l2 if l2 is None else l2,
            blocks=None if alone else self.blocks,
            alone=alone,
        )

    @cached_property
    def own(self) -> Sequence[Batch]:
        """The images of this process."""
        return share(self.batches, self.processes)

    def value_and_gradient(self, w: Array) -> tuple[float, Array]:
        """Return the objective and its gradient (P,); one pass over the data."""
        sums = np.zeros(1 + len(w))
        for batch in self.own:
            sums += np.append(*self.total(batch, w))
        mean = self.processes.total(sums) / self.weight
        penalty, pull = self.penalty(w)
        return float(mean[0]) + penalty, mean[1:] + pull

    def thinning(self, sites: int) -> int:
        """Return one image in how many gives about so many sites, but no fewer than ten images."""
        return max(1, min(self.n_sites // sites, self.n_images // 10))

    def penalty(self, w: Array) -> tuple[float, Array]:
        """Return ``l2 / (2 n) · |w|²`` and its gradient (P,)."""
        pull = np.where(self.parameters.penalised, self.l2 / self.weight * w, 0.0)
        return 0.5 * float(pull @ w), pull

    def total(self, batch: Batch, w: Array, samples: Array | None = None) -> tuple[float, Array]:
        """Return the sum over one batch, and its gradient, without the penalty.

        ``samples`` (N, S, M) are neighbours instead of the labels.
        """
        value, *slopes = total(self._groups(batch, w, samples))
        return value, self.parameters.pull(*slopes)

    def scores(self, w: Array) -> Array:
        """Return the own gradient, without the penalty, of each of this process's images, (n, P)."""
        gradients = [
            self.parameters.pull(sums.by_weights, sums.by_tables)
            for batch in self.own
            for sums in self._groups(batch, w, one_by_one=True)
        ]
        return np.array(gradients).reshape(-1, self.parameters.size)

    def _groups(self, batch: Batch, w: Array, samples: Array | None = None, *, one_by_one: bool = False) -> Any:
        plan = self._plan(batch) if self.blocks is not None and samples is None else None
        if self.alone:
            samples = np.full((*batch.labels.shape, 1), VOID, np.int16)
        how: dict[str, Any] = {"plan": plan, "samples": samples, "one_by_one": one_by_one}
        return sums_of_groups(batch, *self.parameters.expand(w), self.kernels, **how)

    def _plan(self, batch: Batch) -> BlockPlan:
        structure = batch.features.structure
        if batch.site_weights.shape[1] > 1:
            raise InputError(
                "site weights differ within an image, expected one weight per image for objectives over blocks"
            )
        if structure not in self._plans:
            everything = isinstance(self.blocks, str) and self.blocks == "all"
            blocks = [list(range(structure.n_sites))] if everything else self.blocks
            try:
                self._plans[structure] = plan_blocks(blocks, structure, self.parameters.n_labels, MAX_JOINT)
            except TooLargeError:
                if not everything:
                    raise
                raise TooLargeError(
                    f"objective='likelihood' has to add up {self.parameters.n_labels}^{structure.n_sites} labellings,"
                    f" expected at most {MAX_JOINT}, or a tree: use 'composite' or 'pseudolikelihood'"
                ) from None
        return self._plans[structure]


def make_objective(
    parameters: Parameters,
    batches: Sequence[Batch],
    kernels: Any,
    *,
    l2: float,
    blocks: Any = None,
    processes: Processes = ALONE,
) -> Objective:
    """Check the data, count and scale them in one pass, and return the objective over them."""
    n_unary, n_pairwise = len(parameters.unary_names), len(parameters.pairwise_names)
    sums = np.zeros(4 + n_unary + n_pairwise)
    for batch in share(batches, processes):
        parameters.check(batch.features)
        # Weighted as in the objective, so that a site of weight two is the same as two sites to the optimiser also.
        of_sites, of_images = batch.site_weights, batch.site_weights.mean(axis=1, keepdims=True)
        means = mean_square(batch.features.unary, of_sites), mean_square(batch.features.pairwise, of_images)
        per_image = np.concatenate([[of_sites.mean()], *means])
        sums += np.concatenate([[batch.n_images, batch.n_sites, batch.weight()], batch.n_images * per_image])
    n_images, n_sites, weight, counted, *squares = processes.total(sums)  # counted: images as often as they weigh
    if weight <= 0:
        raise InputError("no site has a label that counts, expected labelled data")
    scales = _scales(parameters, *np.split(np.sqrt(np.array(squares) / counted), [n_unary]))
    if not np.isfinite(scales).all():
        raise InputError("features are too large to be squared, expected numbers below 1e150")
    counts = (int(n_images), int(n_sites), float(weight))
    return Objective(parameters, batches, kernels, scales, *counts, l2, blocks, processes=processes)


def _scales(p: Parameters, unary: Array, pairwise: Array) -> Array:
    """Return the root mean square of the feature behind each weight: it makes steps and tolerances free of units."""
    unary, pairwise = (np.where(rms > 0, rms, 1.0) for rms in (unary, pairwise))
    if p.unary == "tables":
        head = np.repeat(np.append(unary, 1.0), p.n_labels)
    else:
        head = np.append(unary.mean(), np.ones(p.n_labels))[: p.n_unary]
    each = 1 if p.potts else p.n_labels**2
    return np.concatenate([head, np.tile(np.repeat(pairwise, each), p.n_groups)])
