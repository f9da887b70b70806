"""Value and gradient of pseudolikelihood and composite likelihood, for one batch and as a mean over the data.

The mean is the sum of ``-log p(y_block | rest)`` over all blocks, divided by n, plus the penalty ``l2 / (2 n) · |w|²``.
Here n is the total weight of the labelled sites (their number if all weights are 1), and the penalty excludes biases.
With "rows+columns" both families of blocks are summed. l2 is 1 / C of scikit-learn's `LogisticRegression`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, TooLargeError
from locpmap.graphs import Box, Graph
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.block_plan import BlockPlan
from locpmap.learning.batches import VOID, Batch
from locpmap.learning.dataset import Dataset
from locpmap.learning.linear import sums_of_groups, total
from locpmap.learning.parameters import Parameters

MAX_JOINT = 1 << 20  # maximum number of joint labellings of an enumerated block


@dataclass(frozen=True, eq=False)
class Objective:
    """Pseudolikelihood, or composite likelihood over ``blocks``; ``independent`` ignores all neighbours.

    Calling it with a batch and weights (P,) returns the sum over the batch and its gradient (P,) without the penalty.
    If ``contrastive``, the value with samples is the sum of their scores minus the scores of the true labels.
    """

    parameters: Parameters
    kernels: Any
    l2: float
    blocks: Any = None
    independent: bool = False
    contrastive: bool = False
    _plans: dict[Box | Graph, BlockPlan] = field(default_factory=dict)

    def __call__(self, batch: Batch, w: Array, samples: Array | None = None) -> tuple[float, Array]:
        """Return value and gradient; ``samples`` (N, S, M) replace the true labels of the neighbours."""
        value, *gradients = total(self._groups(batch, w, samples))
        return value, self.parameters.gradient(*gradients)

    def per_image(self, batch: Batch, w: Array) -> Array:
        """Return the gradient of each image, (N, P)."""
        groups = self._groups(batch, w, one_by_one=True)
        return np.array([self.parameters.gradient(sums.by_weights, sums.by_tables) for sums in groups])

    def mean(self, data: Dataset, w: Array) -> tuple[float, Array]:
        """Return the penalised mean over all data and its gradient (P,); costs one pass over the data."""
        sums = np.zeros(1 + len(w))
        for batch in data.own:
            sums += np.append(*self(batch, w))
        mean = data.processes.total(sums) / data.weight
        penalty, shrinkage = self.penalty(w, data.weight)
        return float(mean[0]) + penalty, mean[1:] + shrinkage

    def penalty(self, w: Array, weight: float) -> tuple[float, Array]:
        """Return ``l2 / (2 n) · |w|²`` and its gradient (P,)."""
        gradient = np.where(self.parameters.penalised, self.l2 / weight * w, 0.0)
        return 0.5 * float(gradient @ w), gradient

    def _groups(self, batch: Batch, w: Array, samples: Array | None = None, *, one_by_one: bool = False) -> Any:
        plan = self._plan(batch) if self.blocks is not None and samples is None else None
        if self.independent:
            samples = np.full((*batch.labels.shape, 1), VOID, np.int16)
        given = (batch, *self.parameters.expand(w), self.kernels)
        contrastive = self.contrastive and samples is not None
        return sums_of_groups(*given, plan=plan, samples=samples, contrastive=contrastive, one_by_one=one_by_one)

    @staticmethod
    def check_weights(batch: Batch) -> None:
        """Raise if site weights differ within an image, for objectives that are not sums over sites."""
        if batch.site_weights.shape[1] > 1:
            raise InputError("site weights differ within an image, expected one weight per image for this objective")

    def _plan(self, batch: Batch) -> BlockPlan:
        structure = batch.features.structure
        self.check_weights(batch)
        if structure not in self._plans:
            everything = isinstance(self.blocks, str) and self.blocks == "all"
            blocks = [list(range(structure.n_sites))] if everything else self.blocks
            try:
                self._plans[structure] = plan_blocks(blocks, structure, self.parameters.n_labels, MAX_JOINT)
            except TooLargeError:
                if not everything:
                    raise
                raise TooLargeError(
                    f"objective='likelihood' has to sum over {self.parameters.n_labels}^{structure.n_sites} labellings,"
                    f" expected at most {MAX_JOINT}, or a tree: use 'composite' or 'pseudolikelihood'"
                ) from None
        return self._plans[structure]
