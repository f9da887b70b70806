"""Composite likelihood: whole blocks of sites given the true labels around them.

``-log p(y_β | y_¬β) = log Σ exp(score of β's labellings) - score of the true one``, where edges inside the block join
the score and edges to the outside act through the true label at their other end.  Void sites are out of their block.
"""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError, TooLargeError, unknown
from locpmap.graphs.blocks import MAX_JOINT
from locpmap.nn.fused import row_log_partitions
from locpmap.nn.potentials import (
    NEAREST,
    VOID,
    Edges,
    Field,
    PairwiseForm,
    check_reduction,
    from_neighbours,
    make_field,
    one_hot,
    reduce,
)

LINES = ("rows", "columns", "rows+columns")
RIGHT, DOWN = NEAREST


class CompositeLikelihoodLoss(torch.nn.Module):  # type: ignore[misc]
    """``-Σ_β log p(y_β | y_¬β)`` over blocks β of the 4-connected grid; exact.

    Rows and columns are chains, summed over by the forward recursion: O(N·H·W·K²) time and memory, one step per column
    (or row) of the image.  Tiles are enumerated: O(N·H·W·K^(h·w)).  Precision as for :class:`PseudolikelihoodLoss`.

    Args:
        blocks: "rows", "columns", "rows+columns" (the sum of both), or a tile ``(h, w)`` with up to 4,096 joint
            labellings; tiles start at the top left corner and are cut at the lower and right border.
        ignore_index: Label of void sites, which contribute nothing, also not as neighbours; they split a chain.
        reduction: "mean" (the sum over all blocks divided by the number of labelled sites) or "sum".

    Called with ``logits``, ``pairwise`` and ``labels`` as :class:`PseudolikelihoodLoss` is.

    >>> import torch
    >>> loss = CompositeLikelihoodLoss("rows", reduction="sum")
    >>> loss(torch.zeros(1, 2, 1, 2), 1.0, torch.tensor([[[0, 0]]])).exp()  # (2e + 2) / e
    tensor(2.7358)
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
        self.ignore_index = ignore_index
        self.reduction = check_reduction(reduction, ("mean", "sum"))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """The loss, a scalar."""
        field = make_field(logits, pairwise, labels, self.ignore_index)
        with torch.autocast(logits.device.type, enabled=False):
            if not isinstance(self.blocks, str):
                loss = tile_loss(field, *self.blocks)
            elif self.blocks == "rows":
                loss = row_loss(field)
            elif self.blocks == "columns":
                loss = row_loss(field.transpose())
            else:
                loss = row_loss(field) + row_loss(field.transpose())
            return reduce(loss, field.labels, self.reduction)


def row_loss(field: Field) -> Tensor:
    """``-Σ log p(row | the other rows)`` over all rows of all images."""
    horizontal, vertical = field.edges
    seen = one_hot(field.labels, field.n_labels, field.scores.dtype)
    scores = field.scores + from_neighbours(vertical, DOWN, seen)
    # Relative to the true labelling, whose score becomes 0: a row's log partition is then its loss by itself, and not
    # the small difference of two numbers that grow with the row.
    true_labels = scores.gather(-1, field.labels.clamp(min=0)[..., None])
    true_pairs = (horizontal.to_second(seen[..., :-1, :]) * seen[..., 1:, :]).sum(-1, keepdim=True)
    relative = scores - true_labels - F.pad(true_pairs, (0, 0, 1, 0))
    alive = field.labels != VOID
    joined = alive[:, :, 1:] & alive[:, :, :-1]
    return row_log_partitions(_one_label_if_void(relative, alive), horizontal, joined).sum()


def tile_loss(field: Field, height: int, width: int) -> Tensor:
    """``-Σ log p(tile | the sites around it)`` over all tiles of all images."""
    n_joint = field.n_labels ** (height * width)
    if n_joint > MAX_JOINT:
        raise TooLargeError(f"blocks=({height}, {width}) has {n_joint} joint labellings, expected at most {MAX_JOINT}")
    device, (rows, columns) = field.labels.device, field.labels.shape[1:]
    # An edge leaves its tile where its second end is in the first column (row) of the next.
    stays_right = (torch.arange(1, columns, device=device) % width != 0).expand(1, rows, -1)
    stays_below = (torch.arange(1, rows, device=device) % height != 0)[:, None].expand(1, -1, columns)
    horizontal, vertical = field.edges
    seen = one_hot(field.labels, field.n_labels, field.scores.dtype)
    scores = field.scores + from_neighbours(horizontal.where(~stays_right), RIGHT, seen)
    scores = scores + from_neighbours(vertical.where(~stays_below), DOWN, seen)

    # Cut tiles are completed with void sites.
    more_rows, more_columns = -rows % height, -columns % width
    labels = F.pad(field.labels, (0, more_columns, 0, more_rows), value=VOID)
    alive = labels != VOID
    scores = _one_label_if_void(F.pad(scores, (0, 0, 0, more_columns, 0, more_rows)), alive)
    right = _tables_between(horizontal.where(stays_right), alive[:, :, :-1] & alive[:, :, 1:], field.n_labels)
    below = _tables_between(vertical.where(stays_below), alive[:, :-1] & alive[:, 1:], field.n_labels)
    choice = torch.cartesian_prod(*[torch.arange(field.n_labels, device=device)] * (height * width))
    choice = choice.reshape(n_joint, height, width)
    joint, truth = scores.new_zeros(()), labels.new_zeros(())
    for row, column in product(range(height), range(width)):
        here = choice[:, row, column]
        of_tiles = slice(None), slice(row, None, height), slice(column, None, width)
        truth = truth * field.n_labels + labels[of_tiles].clamp(min=0)  # the number of the true labelling
        joint = joint + scores[of_tiles].index_select(-1, here)
        if column + 1 < width:
            joint = joint + right[of_tiles].index_select(-1, here * field.n_labels + choice[:, row, column + 1])
        if row + 1 < height:
            joint = joint + below[of_tiles].index_select(-1, here * field.n_labels + choice[:, row + 1, column])
    return F.cross_entropy(joint.flatten(0, -2), truth.flatten(), reduction="sum")


def _tables_between(edges: Edges, joined: Tensor, n_labels: int) -> Tensor:
    """Tables (N, H, W, K²) of edges with two living ends, 0 for all others; ``joined`` may exceed the edges."""
    height, width = joined.shape[1:]
    values = edges.values
    over = (0, 0) * (values.dim() - 3) + (0, width - values.shape[2], 0, height - values.shape[1])
    return Edges(F.pad(values, over)).where(joined).tables(n_labels).flatten(-2)


def _one_label_if_void(scores: Tensor, alive: Tensor) -> Tensor:
    """A void site gets one label of score 0, so that it changes no sum over labellings."""
    alone = scores.new_full(scores.shape[-1:], -torch.inf)
    alone[0] = 0
    return torch.where(alive[..., None], scores, alone)
