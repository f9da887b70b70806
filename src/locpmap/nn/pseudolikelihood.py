"""Pseudolikelihood: the cross-entropy of every site given the true labels of its neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.graphs import Steps
from locpmap.graphs.grid import check_steps
from locpmap.nn.operators import site_losses
from locpmap.nn.potentials import NEAREST, PairwiseForm, check_ignore_index, check_reduction, make_field, reduce


class PseudolikelihoodLoss(torch.nn.Module):  # type: ignore[misc]
    """``-Σ_i log p(y_i | y_¬i)`` on the grid.

    The gradient at the logits of a site is ``p(label | neighbours) - 1{label is true}``; without coupling the loss is
    ``F.cross_entropy``.  Costs O(N·H·W·K), times K for a table per edge.  Computed in single precision, also under
    autocast, or in double precision where that comes in.

    Args:
        ignore_index: Label of void sites, which contribute nothing, also not as neighbours.
        reduction: "mean" over the labelled sites, "sum", or "none" for the loss of every site, (N, H, W).
        steps: Where a site's neighbours are, rows down and columns right (see :class:`locpmap.graphs.Grid`).

    Called with ``logits`` (N, K, H, W), ``pairwise`` and ``labels`` (N, H, W).  ``pairwise`` is a Potts weight (score
    where labels agree), a table (K, K), or a sequence with one entry per step (by default horizontal and vertical) of
    weights, tables, weights per edge (N, H, W-1), (N, H-1, W), or tables per edge, (K, K) appended; a table's first
    axis is the left or upper label.
    Tables are finite; -inf in the logits forbids a label.  NaN in the logits makes the loss NaN, as in
    ``F.cross_entropy``: a check would have to wait for the device.

    >>> import torch
    >>> logits = torch.zeros(1, 2, 1, 2)
    >>> loss = PseudolikelihoodLoss(reduction="none")
    >>> loss(logits, 1.0, torch.tensor([[[0, 0]]])).exp()  # 1 / p = 1 + e^-1 with a neighbour that agrees
    tensor([[[1.3679, 1.3679]]])
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", steps: Steps = NEAREST) -> None:
        super().__init__()
        self.steps = check_steps("steps", steps)
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = check_reduction(reduction, ("mean", "sum", "none"))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """The loss: a scalar, or (N, H, W) without reduction."""
        field = make_field(logits, pairwise, labels, self.ignore_index, self.steps)
        with torch.autocast(logits.device.type, enabled=False):
            samples = field.labels[:, :, None]
            loss, _ = site_losses(field.unary, field.pairwise, field.labels, samples, field.shape, field.form)
            return reduce(loss, field, self.reduction)
