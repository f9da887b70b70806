"""Validation of the losses' arguments, and their conversion to the operators' tensors and to `Potentials`."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.graphs import Box, Volume, box_of
from locpmap.graphs.grid import check_steps, name_of
from locpmap.potentials import Potentials

VOID = -1
# Steps along each axis, (rows, columns) or (planes, rows, columns), to the neighbours of a site.
AnySteps: TypeAlias = tuple[tuple[int, ...], ...]
NEAREST: AnySteps = ((0, 1), (1, 0))
VOLUME_STEPS: dict[int, AnySteps] = {n: Volume(1, 1, 1, n).steps for n in (6, 26)}

# A Potts weight, a table (K, K), or a sequence with one entry per step: weights or tables, shared or per edge.
PairwiseForm: TypeAlias = float | Tensor | Sequence[Any]


class Field(NamedTuple):
    """Scores and true labels of a batch with flattened sites: S sites, E edges, D steps."""

    unary: Tensor  # (N, S, K)
    pairwise: Tensor  # see `locpmap.nn.operators.site_losses`
    form: str  # form of the pairwise scores
    labels: Tensor  # (N, S) int16, VOID at sites without a label
    shape: tuple[int, ...]  # of the sites: (H, W) or (D, H, W)
    steps: AnySteps  # to the neighbours of a site
    terms: tuple[Tensor, ...]  # the caller's pairwise terms, one per step

    @property
    def numbers(self) -> list[int]:
        """Structure in the form that operators take: number of axes, their lengths, and the steps one by one."""
        return [len(self.shape), *self.shape, *(by for step in self.steps for by in step)]


def structure_of(numbers: Sequence[int]) -> Box:
    """Return the grid or volume of `Field.numbers`."""
    n_axes, *rest = numbers
    by = iter(rest[n_axes:])
    return box_of(rest[:n_axes], connectivity_of(tuple(zip(*[by] * n_axes, strict=True))))


def connectivity_of(steps: AnySteps) -> Any:
    """Return the steps of a grid, or the number of neighbours in a volume."""
    return steps if len(steps[0]) == 2 else 2 * len(steps)


def nearest(n_axes: int) -> AnySteps:
    """Return the steps to the nearest neighbours on a grid (2 axes) or in a volume (3 axes)."""
    return NEAREST if n_axes == 2 else VOLUME_STEPS[6]


def parse_steps(steps: object) -> AnySteps:
    """Return the steps of an argument: 6 or 26 neighbours in a volume, their steps, or the steps of a grid."""
    for number, known in VOLUME_STEPS.items():
        if steps in (number, known):
            return known
    return check_steps("steps", steps)


def make_field(
    logits: Tensor, pairwise: PairwiseForm, labels: Tensor, ignore_index: int, steps: AnySteps | None = None
) -> Field:
    """Validate logits, pairwise terms and labels, and return them as a field.

    Without steps, the neighbours are the nearest ones on the grid or in the volume of the logits.

    The precision is double if logits or a pairwise term are in double precision, and single otherwise. Under
    `torch.compile` the range of labels is not checked, and labels out of range count as void.
    """
    if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):
        name, came = ("labels", labels) if isinstance(logits, Tensor) else ("logits", logits)
        raise InputTypeError(f"{name} is a {type(came).__name__}, expected a tensor")
    check_axes(logits, steps)
    if not logits.is_floating_point():
        raise InputTypeError(f"logits has dtype {logits.dtype}, expected floating point")
    n_images, n_labels, *size = logits.shape
    steps = steps or nearest(len(size))
    if labels.shape != (n_images, *size):
        raise InputError(f"labels has shape {tuple(labels.shape)}, expected {(n_images, *size)}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputTypeError(f"labels has dtype {labels.dtype}, expected integers such as torch.int64")
    labels = labels.long()
    void = labels == ignore_index
    outside = ~void & ((labels < 0) | (labels >= n_labels))
    given = _directions(pairwise, logits, steps)
    dtype = torch.float64 if any(v.dtype == torch.float64 for v in (logits, *given)) else torch.float32
    shapes = [(n_images, *(max(0, n - abs(by)) for n, by in zip(size, step, strict=True))) for step in steps]
    for value, shape, step in zip(given, shapes, steps, strict=True):
        _check_term(value, shape, n_labels, name_of(step))
    if not torch.compiler.is_compiling():
        _check_numbers(outside, given, labels, n_labels, ignore_index)
        if any(unpack_dual(value).tangent is not None for value in (logits, *given)):
            raise InputError("logits or pairwise has a tangent (torch.func.jvp), expected none: use reverse mode")
    labels = torch.where(void | outside, VOID, labels)
    form, values = _stacked([value.to(dtype) for value in given], shapes, n_labels)
    unary = logits.movedim(1, -1).flatten(1, -2).to(dtype).contiguous()
    return Field(unary, values, form, labels.flatten(1).to(torch.int16), tuple(size), steps, given)


def check_axes(logits: Tensor, steps: AnySteps | None = None, n_labels: int | str = "K") -> None:
    """Raise InputError unless logits are those of images or volumes, as the steps require."""
    axes = (4, 5) if steps is None else (2 + len(steps[0]),)
    if logits.dim() not in axes or 0 in logits.shape or n_labels not in ("K", logits.shape[1]):
        sites = " or ".join(f"(N, {n_labels}, {'D, ' if n == 5 else ''}H, W)" for n in axes)
        hint = "; volumes need steps=6 or 26" if logits.dim() == 5 and axes == (4,) else ""
        raise InputError(f"logits has shape {tuple(logits.shape)}, expected {sites} with at least one of each{hint}")


def potentials_of(field: Field) -> Potentials:
    """Return the detached potentials from which LocPMAP draws samples, with void sites masked."""
    image = (len(field.unary), *field.shape)
    void = field.labels == VOID
    void = void & ~void.all(1, keepdim=True)  # a mask must leave a site; images without labels have no loss anyway
    mask = void.reshape(image) if bool(void.any()) else None
    return box_potentials(field.unary.detach().reshape(*image, -1), field.terms, field.steps, mask)


def box_potentials(scores: Tensor, terms: Sequence[Tensor], steps: AnySteps, mask: Tensor | None = None) -> Potentials:
    """Return the potentials of scores (N, .., K) and pairwise terms, one per step, in the forms of the losses."""
    # Terms that all images share may have a batch axis of size 1, which Potentials do not accept.
    several = len(scores) > 1
    shared = tuple(t.detach()[0] if t.dim() > 2 and len(t) == 1 and several else t.detach() for t in terms)
    create = Potentials.grid if len(steps[0]) == 2 else Potentials.volume
    return create(scores.detach(), shared, connectivity=connectivity_of(steps), mask=mask)


def _check_numbers(outside: Tensor, terms: Sequence[Tensor], labels: Tensor, n_labels: int, ignore_index: int) -> None:
    """Raise InputError for labels out of range or infinite terms; synchronise with the device once if all are valid."""
    # The sum of a term is not finite if an entry is not. If only the sum overflows, the check of entries passes.
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


def _stacked(terms: list[Tensor], shapes: list[tuple[int, ...]], n_labels: int) -> tuple[str, Tensor]:
    """Return the form of the pairwise scores and one tensor for all steps; shared tables are not expanded."""
    weights = (0, len(shapes[0]))  # numbers of axes of weights for all edges and of weights per edge
    form = "weights"
    tail: tuple[int, ...] = ()  # axes of one entry
    if not all(term.dim() in weights for term in terms):
        form, tail = "edge tables", (n_labels, n_labels)
        eye = torch.eye(n_labels, dtype=terms[0].dtype, device=terms[0].device)
        terms = [term[..., None, None] * eye if term.dim() in weights else term for term in terms]
        if all(table.dim() == 2 for table in terms):
            return "tables", torch.stack(terms)[None]
    images = max(len(term) if term.dim() > len(tail) else 1 for term in terms)
    pairs = zip(terms, shapes, strict=True)
    parts = [term.expand(images, *shape[1:], *tail).flatten(1, -1 - len(tail)) for term, shape in pairs]
    return form, torch.cat(parts, 1)


def check_ignore_index(ignore_index: int) -> int:
    """Return the label of void sites, or raise if it is not a whole number."""
    return whole_number("ignore_index", ignore_index, -(2**31))


def reduce(loss: Tensor, field: Field, reduction: str) -> Tensor:
    """Return losses (N, S) in the shape of the labels, their sum, or their mean over labelled sites (0 without any)."""
    if reduction == "none":
        return loss.reshape(-1, *field.shape)
    total = loss.sum()
    return total / (field.labels != VOID).sum().clamp(min=1) if reduction == "mean" else total


def _directions(pairwise: Any, logits: Tensor, steps: AnySteps) -> tuple[Tensor, ...]:
    # As in Potentials.grid, a nested list is a table, and a sequence of tensors or numbers has one entry per step.
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
            f"pairwise has shape {tuple(both.shape)}, expected (), {(n_labels, n_labels)} or one entry per step"
            f" ({', '.join(name_of(step) for step in steps)})"
        )
    return (both,) * len(steps)


def _tensor(value: Any, name: str, logits: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32  # never half: it would round numbers
    try:
        return torch.as_tensor(value, dtype=dtype, device=logits.device)
    except (TypeError, ValueError, RuntimeError):
        raise InputTypeError(f"{name} is a {type(value).__name__}, expected numbers or a tensor") from None


def _check_term(value: Tensor, shape: tuple[int, ...], n_labels: int, name: str) -> None:
    """Raise InputError unless the shape is that of a weight, a table, weights per edge or tables per edge."""
    table = (n_labels, n_labels)
    if value.shape in ((), table):
        return
    if value.shape[1:] in (shape[1:], (*shape[1:], *table)) and value.shape[0] in (1, shape[0]):
        return
    raise InputError(
        f"pairwise ({name}) has shape {tuple(value.shape)}, expected (), {table}, {shape} or {(*shape, *table)}"
    )
