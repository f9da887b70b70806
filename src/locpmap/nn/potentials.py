"""What the losses share: logits, pairwise terms and labels validated and put into the form that likelihoods take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from locpmap.errors import InputError, InputTypeError, unknown, whole_number
from locpmap.graphs import Steps
from locpmap.graphs.grid import name_of
from locpmap.potentials import Potentials

VOID = -1
NEAREST: Steps = ((0, 1), (1, 0))

# A Potts weight, a table (K, K), or a sequence of weights or tables, for all edges or for each, one per direction.
PairwiseForm: TypeAlias = float | Tensor | Sequence[Any]


class Field(NamedTuple):
    """A model and its true labels, flat: S = H · W sites, E edges, D steps."""

    unary: Tensor  # (N, S, K)
    pairwise: Tensor  # see `locpmap.nn.operators.site_losses`
    form: str  # of the pairwise scores
    labels: Tensor  # (N, S) int16, VOID where there is none
    shape: list[int]  # height, width, and the steps one after another
    terms: tuple[Tensor, ...]  # the pairwise terms as they came, one per step

    @property
    def steps(self) -> Steps:
        """Where a site's neighbours are."""
        return tuple(zip(self.shape[2::2], self.shape[3::2], strict=True))


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
    given = _directions(pairwise, logits, steps)
    dtype = torch.float64 if any(v.dtype == torch.float64 for v in (logits, *given)) else torch.float32
    shapes = [(n_images, max(0, height - down), max(0, width - abs(right))) for down, right in steps]
    for value, shape, step in zip(given, shapes, steps, strict=True):
        _check_term(value, shape, n_labels, name_of(step))
    if not torch.compiler.is_compiling():
        _check_numbers(outside, given, labels, n_labels, ignore_index)
    labels = torch.where(void | outside, VOID, labels)
    form, values = _stacked([value.to(dtype) for value in given], shapes, n_labels)
    unary = logits.movedim(1, -1).flatten(1, 2).to(dtype).contiguous()
    flat = [height, width, *(by for step in steps for by in step)]
    return Field(unary, values, form, labels.flatten(1).to(torch.int16), flat, given)


def potentials_of(field: Field) -> Potentials:
    """Return the potentials that LocPMAP draws samples from: detached, without the void sites."""
    height, width = field.shape[:2]
    image = (len(field.unary), height, width)
    void = field.labels == VOID
    void = void & ~void.all(1, keepdim=True)  # an image without any label has no loss, whatever its samples are
    mask = void.reshape(image) if bool(void.any()) else None
    return grid_potentials(field.unary.detach().reshape(*image, -1), field.terms, field.steps, mask)


def grid_potentials(scores: Tensor, terms: Sequence[Tensor], steps: Steps, mask: Tensor | None = None) -> Potentials:
    """Return the potentials of scores (N, H, W, K) and pairwise terms, one per step, in the forms that losses take."""
    # Potentials take values per edge for all images or for each; terms may have a batch axis of 1.
    several = len(scores) > 1
    shared = tuple(t.detach()[0] if t.dim() in (3, 5) and len(t) == 1 and several else t.detach() for t in terms)
    return Potentials.grid(scores.detach(), shared, connectivity=steps, mask=mask)


def _check_numbers(outside: Tensor, terms: Sequence[Tensor], labels: Tensor, n_labels: int, ignore_index: int) -> None:
    """Refuse labels that are out of range and terms that are not finite, asking the device once."""
    # A sum is not finite where a number is not; the few that overflow are looked at one by one.
    wrong = torch.stack([outside.any(), *(~torch.isfinite(term.detach().sum()) for term in terms)])
    if not bool(wrong.any()):
        return
    if bool(wrong[0]):
        came = int(labels[outside][0])
        raise InputError(f"labels contains {came}, expected 0 to {n_labels - 1} or ignore_index {ignore_index}")
    for term in terms:
        if not bool(torch.isfinite(term).all()):
            number = float(term.detach()[~torch.isfinite(term)][0])
            raise InputError(f"pairwise contains {number}, expected finite numbers")


def _stacked(terms: list[Tensor], shapes: list[tuple[int, int, int]], n_labels: int) -> tuple[str, Tensor]:
    """Return terms of all steps as one tensor, and its form: weights and tables for all edges are kept small."""
    if all(term.dim() in (0, 3) for term in terms):
        images = max(len(term) if term.dim() else 1 for term in terms)
        parts = [term.expand(images, *shape[1:]).flatten(1) for term, shape in zip(terms, shapes, strict=True)]
        return "weights", torch.cat(parts, 1)
    eye = torch.eye(n_labels, dtype=terms[0].dtype, device=terms[0].device)
    tables = [term[..., None, None] * eye if term.dim() in (0, 3) else term for term in terms]
    if all(table.dim() == 2 for table in tables):
        return "tables", torch.stack(tables)[None]
    images = max(len(table) if table.dim() == 5 else 1 for table in tables)
    parts = [
        table.expand(images, *shape[1:], n_labels, n_labels).flatten(1, 2)
        for table, shape in zip(tables, shapes, strict=True)
    ]
    return "edge tables", torch.cat(parts, 1)


def check_ignore_index(ignore_index: int) -> int:
    """Return the label of void sites, or raise where it is not a whole number."""
    return whole_number("ignore_index", ignore_index, -(2**31))


def check_reduction(reduction: str, known: tuple[str, ...]) -> str:
    """The name, if it is one of those known."""
    if reduction not in known:
        raise unknown("reduction", reduction, known)
    return reduction


def reduce(loss: Tensor, field: Field, reduction: str) -> Tensor:
    """Return losses (N, S) as images, their sum, or their mean over labelled sites (0 if there are none)."""
    if reduction == "none":
        return loss.reshape(-1, *field.shape[:2])
    total = loss.sum()
    return total / (field.labels != VOID).sum().clamp(min=1) if reduction == "mean" else total


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


def _check_term(value: Tensor, shape: tuple[int, int, int], n_labels: int, name: str) -> None:
    """Refuse what is not a weight, a table, weights per edge or tables per edge."""
    table = (n_labels, n_labels)
    if value.shape in ((), table):
        return
    if value.shape[1:] in (shape[1:], (*shape[1:], *table)) and value.shape[0] in (1, shape[0]):
        return
    raise InputError(
        f"pairwise ({name}) has shape {tuple(value.shape)}, expected (), {table}, {shape} or {(*shape, *table)}"
    )
