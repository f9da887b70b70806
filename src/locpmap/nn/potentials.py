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
from locpmap.graphs import Steps
from locpmap.graphs.grid import ends_of, name_of

VOID = -1
NEAREST: Steps = ((0, 1), (1, 0))

# A Potts weight, a table (K, K), or a sequence of weights or tables, for all edges or for each, one per direction.
PairwiseForm: TypeAlias = float | Tensor | Sequence[Any]


class Edges(NamedTuple):
    """Pairwise scores of one direction: Potts weights (1|N, 1|H, 1|W) or tables (1|N, 1|H, 1|W, K, K).

    A table's first axis is the label of the first end, the left or upper one.
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
    edges: tuple[Edges, ...]  # one per step; of the first two, to the right (N, H, W-1) and down (N, H-1, W)
    labels: Tensor  # (N, H, W) int64, VOID where there is none
    steps: Steps = NEAREST

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.scores.shape[-1])

    def transpose(self) -> Field:
        """The same with rows and columns swapped, for nearest neighbours."""
        horizontal, vertical = (edges.transpose() for edges in self.edges)
        return Field(self.scores.transpose(1, 2), (vertical, horizontal), self.labels.transpose(1, 2))


def make_field(
    logits: Tensor, pairwise: PairwiseForm, labels: Tensor, ignore_index: int, steps: Steps = NEAREST
) -> Field:
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

    given = _directions(pairwise, logits, steps)
    dtype = torch.float64 if any(v.dtype == torch.float64 for v in (logits, *given)) else torch.float32
    shapes = [(n_images, max(0, height - down), max(0, width - abs(right))) for down, right in steps]
    edges = tuple(
        Edges(_per_edge(value, shape, n_labels, name_of(step)).to(dtype))
        for value, shape, step in zip(given, shapes, steps, strict=True)
    )
    return Field(logits.movedim(1, -1).to(dtype), edges, labels, steps)


def local_scores(field: Field, labels: Tensor) -> Tensor:
    """The score of every label at every site given the neighbours' labels (.., N, H, W): (.., N, H, W, K).

    Costs O(N·H·W·K) per direction for Potts weights and shared tables, times K for a table per edge.
    """
    seen = one_hot(labels, field.n_labels, field.scores.dtype)
    scores = field.scores
    for edges, step in zip(field.edges, field.steps, strict=True):
        scores = scores + from_neighbours(edges, step, seen)
    return scores


def one_hot(labels: Tensor, n_labels: int, dtype: torch.dtype) -> Tensor:
    """(.., K), 1 at the label; all 0 for a void site."""
    return (labels[..., None] == torch.arange(n_labels, device=labels.device)).to(dtype)


def from_neighbours(edges: Edges, step: tuple[int, int], seen: Tensor) -> Tensor:
    """What the neighbours along one step, there and back, add to the scores, (.., N, H, W, K)."""
    height, width = seen.shape[-3:-1]
    first, second = ends_of(step, height, width)
    to_first = _put_back(edges.to_first(seen[..., second[0], second[1], :]), first, height, width)
    return to_first + _put_back(edges.to_second(seen[..., first[0], first[1], :]), second, height, width)


def _put_back(part: Tensor, place: tuple[slice, slice], height: int, width: int) -> Tensor:
    """Values (.., H', W', K) of some rows and columns in the whole image, 0 elsewhere."""
    rows, columns = place
    return F.pad(part, (0, 0, columns.start, width - columns.stop, rows.start, height - rows.stop))


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


def _directions(pairwise: Any, logits: Tensor, steps: Steps) -> tuple[Tensor, ...]:
    # As for potentials: a nested list is a table, a sequence of tensors or numbers has one entry per direction.
    listed = isinstance(pairwise, list | tuple)
    if listed and not any(isinstance(entry, list | tuple) for entry in pairwise):
        names = [name_of(step) for step in steps]
        if len(pairwise) != len(steps):
            raise InputError(f"pairwise has {len(pairwise)} entries, expected {len(steps)}: {' and '.join(names)}")
        return tuple(_tensor(entry, f"pairwise ({name})", logits) for entry, name in zip(pairwise, names, strict=True))
    n_labels = logits.shape[1]
    both = _tensor(pairwise, "pairwise", logits)
    if both.dim() not in (0, 2):
        raise InputError(
            f"pairwise has shape {tuple(both.shape)}, expected (), {(n_labels, n_labels)} or a pair"
            f" ({', '.join(name_of(step) for step in steps)})"
        )
    return (both,) * len(steps)


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
