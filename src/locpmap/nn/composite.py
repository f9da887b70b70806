"""Composite likelihood: the likelihood of blocks of sites given the true labels around them.

``-log p(y_β | y_¬β) = log Σ exp(score of β's labellings) - score of the true labelling``. The score contains the edges
inside block β, and the edges that leave β with the true label at their outer end. Void sites are removed from blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.errors import InputError, unknown
from locpmap.nn.operators import block_losses
from locpmap.nn.potentials import NEAREST, PairwiseForm, check_ignore_index, check_reduction, make_field, reduce

LINES = ("rows", "columns", "rows+columns")


class CompositeLikelihoodLoss(torch.nn.Module):  # type: ignore[misc]
    """Negative log composite likelihood ``-Σ_β log p(y_β | y_¬β)`` over blocks β of the 4-connected grid.

    Call it as ``loss(logits, pairwise, labels)``; see :meth:`PseudolikelihoodLoss.forward` for the arguments.

    Args:
        blocks (str or tuple, default "rows+columns"): "rows", "columns", "rows+columns" (the sum of both), or a tile
            ``(h, w)`` with up to 4,096 joint labellings. Tiles start at the top left corner and are cut at the lower
            and right borders.
        ignore_index (int, default -100): Label of void sites. They have no loss, do not influence their neighbours,
            and split a chain.
        reduction (str, default "mean"): "mean" divides the sum over all blocks by the number of labelled sites; "sum"
            does not.

    Notes:
        Rows and columns are chains, summed over by the forward recursion: O(N·H·W·K²) time and memory. Tiles are
        enumerated: O(N·H·W·K^(h·w)). Precision and NaN logits are handled as by :class:`PseudolikelihoodLoss`.

    Example:
        >>> from locpmap.nn import CompositeLikelihoodLoss
        >>> import torch
        >>> loss = CompositeLikelihoodLoss("rows", reduction="sum")
        >>> loss(torch.zeros(1, 2, 1, 2), 1.0, torch.tensor([[[0, 0]]])).exp()  # (2e + 2) / e
        tensor(2.7358)

    See Also:
        :class:`PseudolikelihoodLoss`, :class:`ConsistentLoss`.
    """

    def __init__(
        self, blocks: str | tuple[int, int] = "rows+columns", ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if isinstance(blocks, str):
            if blocks not in LINES:
                raise unknown("blocks", blocks, LINES)
        elif not isinstance(blocks, tuple) or len(blocks) != 2 or not all(isinstance(n, int) and n > 0 for n in blocks):
            raise InputError(f"blocks is {blocks!r}, expected a name or a tile (h, w) of at least one site")
        self.blocks, self.steps = blocks, NEAREST
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = check_reduction(reduction, ("mean", "sum"))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """Return the loss, a scalar tensor; see :meth:`PseudolikelihoodLoss.forward` for the arguments."""
        field = make_field(logits, pairwise, labels, self.ignore_index)
        name = self.blocks if isinstance(self.blocks, str) else f"{self.blocks[0]},{self.blocks[1]}"
        with torch.autocast(logits.device.type, enabled=False):
            how = (field.unary, field.pairwise, field.labels, field.shape, field.form, name)
            return reduce(block_losses(*how)[0], field, self.reduction)
