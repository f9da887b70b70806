"""What the losses share: logits, pairwise terms and labels made into one form, and scores given the neighbours' labels.

Inside, the label axis comes last, -1 marks a void site, and the labels around a site are one-hot vectors ("seen"): that
of a void site is zero everywhere, so that it is nobody's neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError, InputTypeError, unknown

VOID = -1

# A Potts weight, a table (K, K), or a pair (horizontal, vertical) of weights or tables, for all edges or for each.
PairwiseForm: TypeAlias = float | Tensor | Sequence[Any]


class Edges(NamedTuple):
    """Pairwise scores of one direction: Potts weights (1|N, 1|H, 1|W) or tables (1|N, 1|H, 1|W, K, K).

    A table's first axis is the label of the left or upper end.
    """

    values: Tensor

    def to_first(self, seen: Tensor) -> Tensor:
        """What the second ends' labels, (.., N, H, W, K), add to the scores of the first ends; the same shape."""
        if self.values.dim() == 3:
            return self.values[..., None] * seen
        return torch.einsum("...ab,...b->...a", self.values, seen)

    def to_second(self, seen: Tensor) -> Tensor:
        """What the first ends' labels add to the scores of the second ends."""
        if self.values.dim() == 3:
            return self.values[..., None] * seen
        return torch.einsum("...ab,...a->...b", self.values, seen)

    def where(self, kept: Tensor) -> Edges:
        """The same, but 0 where ``kept``, broadcastable to (N, H, W), is false."""
        return Edges(self.values * (kept if self.values.dim() == 3 else kept[..., None, None]))

    def tables(self, n_labels: int) -> Tensor:
        """Tables (1|N, 1|H, 1|W, K, K), also of Potts weights."""
        if self.values.dim() == 5:
            return self.values
        eye = torch.eye(n_labels, dtype=self.values.dtype, device=self.values.device)
        return self.values[..., None, None] * eye

    def transpose(self) -> Edges:
        """The edges of the image with rows and columns swapped."""
        return Edges(self.values.transpose(1, 2))


class Field(NamedTuple):
    """A model and its true labels."""

    scores: Tensor  # (N, H, W, K)
    horizontal: Edges  # from a site to its right neighbour, (N, H, W-1)
    vertical: Edges  # from a site to the one below, (N, H-1, W)
    labels: Tensor  # (N, H, W) int64, VOID where there is none

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.scores.shape[-1])

    def transpose(self) -> Field:
        """The same with rows and columns swapped."""
        return Field(
            self.scores.transpose(1, 2),
            self.vertical.transpose(),
            self.horizontal.transpose(),
            self.labels.transpose(1, 2),
        )


def make_field(logits: Tensor, pairwise: PairwiseForm, labels: Tensor, ignore_index: int) -> Field:
    """Validate the three arguments of a loss.

    Single precision, or double where a tensor in double precision comes in.  That labels are in range is not checked
    while compiling; one that is not counts as void then.
    """
    if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):
        name, came = ("labels", labels) if isinstance(logits, Tensor) else ("logits", logits)
        raise InputTypeError(f"{name} is a {type(came).__name__}, expected a tensor")
    if logits.dim() != 4 or 0 in logits.shape:
        raise InputError(f"logits has shape {tuple(logits.shape)}, expected (N, K, H, W) with at least one of each")
    if not logits.is_floating_point():
        raise InputTypeError(f"logits has dtype {logits.dtype}, expected floating point")
    n_images, n_labels, height, width = logits.shape
    if labels.shape != (n_images, height, width):
        raise InputError(f"labels has shape {tuple(labels.shape)}, expected {(n_images, height, width)}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputTypeError(f"labels has dtype {labels.dtype}, expected integers such as torch.int64")
    labels = labels.long()
    void = labels == ignore_index
    outside = ~void & ((labels < 0) | (labels >= n_labels))
    if not torch.compiler.is_compiling() and bool(outside.any()):
        came = int(labels[outside][0])
        raise InputError(f"labels contains {came}, expected 0 to {n_labels - 1} or ignore_index {ignore_index}")
    labels = torch.where(void | outside, VOID, labels)

    given = _directions(pairwise, logits)
    dtype = torch.float64 if any(v.dtype == torch.float64 for v in (logits, *given)) else torch.float32
    shapes = ((n_images, height, width - 1), (n_images, height - 1, width))
    names = ("horizontal", "vertical")
    horizontal, vertical = (
        Edges(_per_edge(value, shape, n_labels, name).to(dtype))
        for value, shape, name in zip(given, shapes, names, strict=True)
    )
    return Field(logits.movedim(1, -1).to(dtype), horizontal, vertical, labels)


def local_scores(field: Field, labels: Tensor) -> Tensor:
    """The score of every label at every site given the neighbours' labels (.., N, H, W): (.., N, H, W, K).

    Costs O(N·H·W·K) for Potts weights and shared tables, times K for a table per edge.
    """
    seen = one_hot(labels, field.n_labels, field.scores.dtype)
    return field.scores + beside(field.horizontal, seen) + above_and_below(field.vertical, seen)


def one_hot(labels: Tensor, n_labels: int, dtype: torch.dtype) -> Tensor:
    """(.., K), 1 at the label; all 0 for a void site."""
    return (labels[..., None] == torch.arange(n_labels, device=labels.device)).to(dtype)


def beside(edges: Edges, seen: Tensor) -> Tensor:
    """What horizontal neighbours add to the scores, (.., N, H, W, K)."""
    from_right = F.pad(edges.to_first(seen[..., 1:, :]), (0, 0, 0, 1))
    from_left = F.pad(edges.to_second(seen[..., :-1, :]), (0, 0, 1, 0))
    return from_right + from_left


def above_and_below(edges: Edges, seen: Tensor) -> Tensor:
    """What vertical neighbours add to the scores, (.., N, H, W, K)."""
    return beside(edges.transpose(), seen.transpose(-3, -2)).transpose(-3, -2)


def negative_log_probability(scores: Tensor, labels: Tensor) -> Tensor:
    """``-log softmax(scores)`` (.., K) at the labels (..); 0 at void sites."""
    flat = F.cross_entropy(scores.flatten(0, -2), labels.flatten(), ignore_index=VOID, reduction="none")
    return flat.reshape(labels.shape)


def check_reduction(reduction: str, known: tuple[str, ...]) -> str:
    """The name, if it is one of those known."""
    if reduction not in known:
        raise unknown("reduction", reduction, known)
    return reduction


def reduce(loss: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """Losses of sites, or of anything else, into their sum or their mean over labelled sites (0 if there are none)."""
    if reduction == "none":
        return loss
    total = loss.sum()
    return total / (labels != VOID).sum().clamp(min=1) if reduction == "mean" else total


def _directions(pairwise: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
    # As for potentials: a nested list is a table, a sequence of tensors or numbers has one entry per direction.
    listed = isinstance(pairwise, list | tuple)
    if listed and not any(isinstance(entry, list | tuple) for entry in pairwise):
        if len(pairwise) != 2:
            raise InputError(f"pairwise has {len(pairwise)} entries, expected 2: horizontal and vertical")
        horizontal, vertical = pairwise
        return _tensor(horizontal, "pairwise (horizontal)", logits), _tensor(vertical, "pairwise (vertical)", logits)
    n_labels = logits.shape[1]
    both = _tensor(pairwise, "pairwise", logits)
    if both.dim() not in (0, 2):
        raise InputError(
            f"pairwise has shape {tuple(both.shape)}, expected (), {(n_labels, n_labels)} or a pair"
            f" (horizontal, vertical)"
        )
    return both, both


def _tensor(value: Any, name: str, logits: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32  # not half: 0.1 is meant as it stands
    try:
        return torch.as_tensor(value, dtype=dtype, device=logits.device)
    except (TypeError, ValueError, RuntimeError):
        raise InputTypeError(f"{name} is a {type(value).__name__}, expected numbers or a tensor") from None


def _per_edge(value: Tensor, shape: tuple[int, int, int], n_labels: int, name: str) -> Tensor:
    """A weight, a table, weights per edge or tables per edge as :class:`Edges` holds them."""
    table = (n_labels, n_labels)
    if value.shape == ():
        return value.reshape(1, 1, 1)
    if value.shape == table:
        return value.reshape(1, 1, 1, *table)
    if value.shape[1:] in (shape[1:], (*shape[1:], *table)) and value.shape[0] in (1, shape[0]):
        return value
    raise InputError(
        f"pairwise ({name}) has shape {tuple(value.shape)}, expected (), {table}, {shape} or {(*shape, *table)}"
    )
