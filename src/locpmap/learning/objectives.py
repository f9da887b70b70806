"""Value and gradient of pseudolikelihood and composite likelihood over a source of batches.

The value is the sum of ``-log p(y_block | rest)`` over all blocks (rows and columns are two families of blocks, and
both are summed) per labelled site, plus ``l2 / (2 n) · |w|²`` over all weights but the biases, n being the number of
labelled sites.  So l2 is 1 / C of scikit-learn's logistic regression.  Work is cut into jobs by the data alone and
added up in one order: the result does not depend on the number of threads.  Several processes go through a share of the
images each; their sums are those of one process but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import namespace
from locpmap.errors import InputError, TooLargeError
from locpmap.graphs import Graph, Grid
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.observations import Observations
from locpmap.kernels.threads import Threads
from locpmap.learning.batches import VOID, Batch, Source, share
from locpmap.learning.parameters import Parameters
from locpmap.learning.placement import Device, Host
from locpmap.learning.processes import ALONE, Processes

Array = npt.NDArray[Any]
ROWS = 1 << 15  # of features that are squared at a time
MAX_JOINT = 1 << 20  # joint labellings of a block that is enumerated
# Sites of one job: few enough jobs to keep their slopes, enough of them to share out.  A GPU shares them out by itself;
# torch's operations take memory for all that they are given.
JOB_SITES = {"triton": 1 << 62, "torch": 1 << 22}
CPU_JOB_SITES = 1 << 16
CPU_JOBS, GPU_JOBS = 16, 1 << 12  # whose slopes are held at a time, by thread

Slopes = tuple[Any, Any, Any]  # value (1,), by label weights (D + 1, L), by tables (G, F, L, L)


class Objective:
    """Pseudolikelihood, or composite likelihood over ``blocks``; ``alone``: as if no site had neighbours."""

    def __init__(
        self,
        parameters: Parameters,
        source: Source,
        kernels: Any,
        threads: Threads,
        *,
        l2: float,
        blocks: Any = None,
        alone: bool = False,
        processes: Processes = ALONE,
    ) -> None:
        self.parameters, self.source, self.kernels, self.threads = parameters, source, kernels, threads
        self.l2, self.blocks, self.alone, self.processes = l2, blocks, alone, processes
        self.own = share(source, processes)
        self.where = Host() if kernels.device is None else Device()
        self._plans: dict[Grid | Graph, BlockPlan] = {}
        n_unary, n_pairwise = len(parameters.unary_names), len(parameters.pairwise_names)
        sums = np.zeros(4 + n_unary + n_pairwise)
        for batch in self.own:
            parameters.check(batch.features)
            # Weighted as in the objective, so that a site of weight two is the same as two sites to the optimiser also.
            of_sites, of_images = batch.site_weights, batch.site_weights.mean(axis=1, keepdims=True)
            means = _mean_square(batch.features.unary, of_sites), _mean_square(batch.features.pairwise, of_images)
            per_image = np.concatenate([[of_sites.mean()], *means])
            sums += np.concatenate([[batch.n_images, batch.n_sites, batch.weight()], batch.n_images * per_image])
        n_images, n_sites, weight, counted, *squares = processes.total(sums)  # counted: images as often as they weigh
        self.n_images, self.n_sites, self.weight = int(n_images), int(n_sites), float(weight)
        if self.weight <= 0:
            raise InputError("no site has a label that counts, expected labelled data")
        self.scales = self._scales(*np.split(np.sqrt(np.array(squares) / counted), [n_unary]))
        if not np.isfinite(self.scales).all():
            raise InputError("features are too large to be squared, expected numbers below 1e150")

    def on(self, source: Source, l2: float | None = None) -> Objective:
        """The same objective on other data."""
        how = (self.parameters, source, self.kernels, self.threads)
        options = {"blocks": self.blocks, "alone": self.alone, "processes": self.processes}
        return Objective(*how, l2=self.l2 if l2 is None else l2, **options)

    def value_and_gradient(self, w: Array) -> tuple[float, Array]:
        """The objective and its gradient (P,); one pass over the data."""
        sums = np.zeros(1 + len(w))
        for batch in self.own:
            value, slope = self.total(batch, w)
            sums += np.append(value, slope)
        mean = self.processes.total(sums) / self.weight
        penalty, pull = self.penalty(w)
        return float(mean[0]) + penalty, mean[1:] + pull

    def thinning(self, sites: int) -> int:
        """One image in how many gives about so many sites, but no fewer than ten images."""
        return max(1, min(self.n_sites // sites, self.n_images // 10))

    def penalty(self, w: Array) -> tuple[float, Array]:
        """``l2 / (2 n) · |w|²`` and its gradient (P,)."""
        pull = np.where(self.parameters.penalised, self.l2 / self.weight * w, 0.0)
        return 0.5 * float(pull @ w), pull

    def total(self, batch: Batch, w: Array, samples: Array | None = None) -> tuple[float, Array]:
        """The sum over one batch without the penalty; ``samples`` (N, S, M) as neighbours instead of the labels."""
        sums = np.zeros(self._row_length)
        for row in self._jobs(batch, w, samples, whole_images=False):
            sums += row
        value, *slopes = self._parts(sums)
        return float(value[0]), self.parameters.pull(*slopes)

    def scores(self, w: Array) -> Array:
        """The own gradient, without the penalty, of each of this process's images, (n, P)."""
        return np.array(
            [
                self.parameters.pull(*self._parts(row)[1:])
                for batch in self.own
                for row in self._jobs(batch, w, None, whole_images=True)
            ]
        ).reshape(-1, self.parameters.size)

    def _jobs(self, batch: Batch, w: Array, samples: Array | None, *, whole_images: bool) -> Iterator[Array]:
        """The value and the slopes of every job, in order, each in one row."""
        where = self.where
        _, weights, tables = self._parts(
            where.place(np.concatenate([[0.0], *map(np.ravel, self.parameters.expand(w))]))
        )
        observations = batch.features.observations(self.parameters.n_groups == 1)
        data = Observations(*(where.keep(array) for array in observations))
        labels, site_weights = where.keep(batch.labels), where.keep(batch.site_weights)
        n_images, n_sites = batch.labels.shape
        run: Callable[..., None]
        given: tuple[Any, ...]
        if self.blocks is None or samples is not None:
            near = labels[:, :, None] if samples is None else where.place(samples)
            if self.alone:
                near = namespace(near).full_like(near, VOID)
            size, run = n_sites, self.kernels.site_likelihood
            given = (data, labels, near, site_weights)
        else:
            plan = self._plan(batch)
            size, run = len(plan.joint), self.kernels.block_likelihood
            given = (data, plan, labels, site_weights[:, 0])
        most = JOB_SITES.get(self.kernels.name, CPU_JOB_SITES)
        images = 1 if whole_images else max(1, most // n_sites)
        pieces = 1 if whole_images else -(-n_sites // most)

        def job(lo: int, begin: int, stop: int) -> Any:
            row = where.zeros(self._row_length)
            run(*given, weights, tables, *self._parts(row), lo, min(lo + images, n_images), begin, stop)
            return row

        bounds = [size * p // pieces for p in range(pieces + 1)]
        jobs = [(lo, bounds[p], bounds[p + 1]) for lo in range(0, n_images, images) for p in range(pieces)]
        group = (CPU_JOBS if self.kernels.device is None else GPU_JOBS) * self.threads.n_threads
        for first in range(0, len(jobs), group):
            yield from where.read(self.threads.map(job, jobs[first : first + group]))

    @property
    def _row_length(self) -> int:
        return 1 + int(np.prod(self.parameters.weights_shape) + np.prod(self.parameters.tables_shape))

    def _parts(self, row: Any) -> Slopes:
        """Views of one row of numbers: the value, those of the label weights and those of the tables."""
        weights, tables = self.parameters.weights_shape, self.parameters.tables_shape
        cut = 1 + weights[0] * weights[1]
        return row[:1], row[1:cut].reshape(weights), row[cut:].reshape(tables)

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

    def _scales(self, unary: Array, pairwise: Array) -> Array:
        """The root mean square of the feature behind each weight: what makes steps and tolerances free of units."""
        unary, pairwise = (np.where(rms > 0, rms, 1.0) for rms in (unary, pairwise))
        p = self.parameters
        if p.unary == "tables":
            head = np.repeat(np.append(unary, 1.0), p.n_labels)
        else:
            head = np.append(unary.mean(), np.ones(p.n_labels))[: p.n_unary]
        each = 1 if p.potts else p.n_labels**2
        return np.concatenate([head, np.tile(np.repeat(pairwise, each), p.n_groups)])


def _mean_square(features: Array, weights: Array) -> Array:
    """Of features (1|N, 1|S, D) with weights (1|N, 1|S), (D,)."""
    # In double precision: the steps of a fit depend on it, and must not on how the images are shared out.
    if weights.size == 1:
        flat, total = features.reshape(-1, features.shape[2]), np.zeros(features.shape[2])
        with np.errstate(over="ignore"):  # an infinite scale is refused
            for first in range(0, len(flat), ROWS):
                rows = flat[first : first + ROWS].astype(np.float64)
                total += np.einsum("nd,nd->d", rows, rows)
        total *= weights[0, 0]
    else:
        total = np.einsum("ns,nsd,nsd->d", weights, features, features, dtype=np.float64)
    return total / (max(len(weights), len(features)) * max(weights.shape[1], features.shape[1], 1))
