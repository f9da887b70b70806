"""The pseudolikelihood: the cross-entropy of every site given the true labels of its neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.graphs import Steps
from locpmap.graphs.grid import check_steps
from locpmap.nn.operators import site_losses
from locpmap.nn.potentials import NEAREST, PairwiseForm, check_ignore_index, check_reduction, make_field, reduce


class PseudolikelihoodLoss(torch.nn.Module):  # type: ignore[misc]
    """Negative log-pseudolikelihood of a CRF on the grid: ``-log p(y_i | y_¬i)`` per site i.

    Each site contributes the cross-entropy of its label given the true labels of its neighbours. Without coupling the
    loss equals ``torch.nn.functional.cross_entropy``. Call it as ``loss(logits, pairwise, labels)``; see
    :meth:`forward` for the arguments.

    Args:
        ignore_index (int, default -100): Label of void sites. They have no loss and do not influence their neighbours.
        reduction (str, default "mean"): "mean" over the labelled sites, "sum", or "none" for the loss of every site.
        steps (tuple of pairs, default ((0, 1), (1, 0))): Steps (rows down, columns right) to the neighbours of a site,
            with the constraints of :class:`locpmap.graphs.Grid`.

    Notes:
        Costs O(N·H·W·K), and K times as much for tables per edge. The loss is computed in single precision, also under
        autocast, or in double precision if an argument is. Its gradient with respect to the logits of a site is
        ``p(label | neighbours) - 1{label is true}``, up to the reduction. NaN in the logits makes the loss NaN, as in
        ``cross_entropy``; a check would have to wait for the device.

    Example:
        >>> from locpmap.nn import PseudolikelihoodLoss
        >>> import torch
        >>> logits = torch.zeros(1, 2, 1, 2)
        >>> loss = PseudolikelihoodLoss(reduction="none")
        >>> loss(logits, 1.0, torch.tensor([[[0, 0]]])).exp()  # 1 / p = 1 + e^-1 with a neighbour that agrees
        tensor([[[1.3679, 1.3679]]])

    See Also:
        :class:`CompositeLikelihoodLoss`, :class:`ConsistentLoss`, :class:`CRFHead`.
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", steps: Steps = NEAREST) -> None:
        super().__init__()
        self.steps = check_steps("steps", steps)
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = check_reduction(reduction, ("mean", "sum", "none"))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """Return the loss.

        Args:
            logits (Tensor): Unary scores (N, K, H, W). A score of -inf forbids a label.
            pairwise (float, Tensor or sequence): Finite pairwise scores: a Potts weight, which scores equal labels; a
                table (K, K), whose first axis is the label of the left or upper site; or a sequence with one entry per
                step, by default horizontal and vertical. An entry is a weight, a table, weights per edge, or tables
                per edge. For horizontal edges, these have the shapes (), (K, K), (N, H, W-1) and (N, H, W-1, K, K).
            labels (Tensor): True labels (N, H, W), integers.

        Returns:
            A scalar tensor, or (N, H, W) for ``reduction="none"``.
        """
        field = make_field(logits, pairwise, labels, self.ignore_index, self.steps)
        with torch.autocast(logits.device.type, enabled=False):
            samples = field.labels[:, :, None]
            loss, _ = site_losses(field.unary, field.pairwise, field.labels, samples, field.shape, field.form)
            return reduce(loss, field, self.reduction)
