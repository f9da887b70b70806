"""Triton's operations as torch's own, ``torch.ops.locpmap.<operation>``: what `torch.compile` can see through.

Schemas follow the kernels' signatures: tensors and numbers as they are, records such as :class:`Model` field by field,
lists of numbers for NumPy arrays, and tensors on the CPU for those of a :class:`BlockPlan`.
The library itself calls the kernels directly, since torch's way to an operator of thirty arguments takes longer than a
launch; :func:`operator` is for those who compile what they write around them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import torch

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import Model
from locpmap.kernels.observations import Observations
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.triton import loss_operators  # noqa: F401  (registers the losses)
from locpmap.kernels.triton.keeping import kept_with

RECORDS = (BlockPlan, Model, Observations, Perturbation)
PLAIN = {int: "SymInt", float: "float", bool: "bool", str: "str", torch.Tensor: "Tensor", Any: "Tensor"}
PLAIN |= {Sequence[int]: "int[]", tuple[int, int, int]: "int[]", npt.NDArray[Any]: "Tensor"}
LIBRARY = torch.library.Library("locpmap", "FRAGMENT")

Given = dict[str, Any]


class Operation(NamedTuple):
    """Which arguments an operation writes to, and a tensor like the one it gives back, if any."""

    written: tuple[str, ...]
    result: Callable[[Given], torch.Tensor] | None = None


def _last_sweeps(given: Given) -> torch.Tensor:
    labels = given["labels"]
    return labels.new_empty((labels.shape[0], labels.shape[2]), dtype=torch.int32)


def _visited(given: Given) -> torch.Tensor:
    return given["messages"].new_empty((given["n_sweeps"] + 1,), dtype=torch.int32)


OPERATIONS = {
    "bethe_edges": Operation(("terms",)),
    "block_likelihood": Operation(("value", "slope", "table_slope")),
    "climb_blocks": Operation(("labels",), _last_sweeps),
    "climb_lines": Operation(("labels",), _last_sweeps),
    "climb_potts": Operation(("labels",), _last_sweeps),
    "climb_sites": Operation(("labels",), _last_sweeps),
    "conditionals": Operation(("sums",)),
    "decode_messages": Operation(("labels",)),
    "forest_log_partitions": Operation(("values",)),
    "gibbs": Operation(("labels", "totals", "kept")),
    "grid_conditionals": Operation(("sums",)),
    "log_beliefs": Operation(("beliefs", "normalisers")),
    "mean_field": Operation(("beliefs", "dirty"), lambda given: given["beliefs"].new_empty((), dtype=torch.int32)),
    "mean_field_bound": Operation(("terms",)),
    "pass_linear": Operation(("messages", "dirty"), _visited),
    "pass_messages": Operation(("messages", "dirty", "last"), _visited),
    "perturb_and_max_product": Operation(("labels",), _last_sweeps),
    "score_terms": Operation(("terms",)),
    "shares": Operation(("probability", "best")),
    "site_likelihood": Operation(("value", "slope", "table_slope")),
    "votes": Operation(("totals",)),
}


def operator(name: str) -> Callable[..., Any]:
    """The operation with the kernel's own arguments, called through torch."""
    kernel, registered = _kernel(name), getattr(torch.ops.locpmap, name).default

    def call(*arguments: Any, **named: Any) -> Any:
        given = inspect.signature(kernel).bind(*arguments, **named)
        given.apply_defaults()
        return registered(*_flat(given.arguments.values()))

    return call


def _kernel(name: str) -> Callable[..., Any]:
    kernel: Callable[..., Any] = getattr(import_module(f"locpmap.kernels.triton.{name}"), name)
    return kernel


def _flat(arguments: Any) -> Iterator[Any]:
    """Records field by field; what says what to launch, as numbers, and plans as tensors on the CPU."""
    for argument in arguments:
        if isinstance(argument, BlockPlan):
            yield from kept_with(argument, "tensors", lambda plan=argument: [torch.tensor(part) for part in plan])
            continue
        for part in argument if isinstance(argument, RECORDS) else (argument,):
            yield part.tolist() if isinstance(part, np.ndarray) else part


def _on_host(plan: BlockPlan) -> BlockPlan:
    """A plan of tensors as one of arrays, copies: what is kept with the tensors must not keep them alive."""
    return kept_with(plan, "arrays", lambda: BlockPlan(*(np.array(part.cpu().numpy()) for part in plan)))


def _schema(kernel: Callable[..., Any], operation: Operation) -> str:
    hints, parts = get_type_hints(kernel), []
    for name, parameter in inspect.signature(kernel).parameters.items():
        kind = hints[name]
        if kind in RECORDS:
            fields = get_type_hints(kind).items()
            parts += [f"{'int[]' if f == 'class_ptr' else PLAIN[of]} {name}_{f}" for f, of in fields]
            continue
        optional = NoneType in get_args(kind)
        text = PLAIN[get_args(kind)[0] if optional else kind]
        if name in operation.written:
            text += f"({chr(ord('a') + operation.written.index(name))}!)"
        default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default}"
        parts.append(f"{text}{'?' if optional else ''} {name}{default}")
    return f"({', '.join(parts)}) -> {'()' if operation.result is None else 'Tensor'}"


def _register(name: str, operation: Operation) -> None:
    kernel = _kernel(name)
    hints = get_type_hints(kernel)
    parameters = inspect.signature(kernel).parameters

    def gathered(flat: tuple[Any, ...]) -> Given:
        rest, given = iter(flat), {}
        for argument, parameter in parameters.items():
            kind = hints[argument]
            if kind in RECORDS:
                fields = {field: next(rest) for field in kind._fields}
                if "class_ptr" in fields:
                    fields["class_ptr"] = np.array(fields["class_ptr"])
                given[argument] = kind(**fields)
            else:
                given[argument] = next(rest, parameter.default)  # torch leaves out what is the default
        return given

    def run(*flat: Any) -> Any:
        given = gathered(flat)
        result = kernel(**{name: _on_host(it) if isinstance(it, BlockPlan) else it for name, it in given.items()})
        # Torch does not see what kernels write, and what is kept with a tensor goes by its version.
        torch.autograd.graph.increment_version([given[name] for name in operation.written if given[name] is not None])
        return None if result is None else result.clone()  # it may be a part of something larger

    def like(*flat: Any) -> Any:
        return None if operation.result is None else operation.result(gathered(flat))

    LIBRARY.define(f"{name}{_schema(kernel, operation)}", tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"locpmap::{name}", like, lib=LIBRARY)


for _name, _operation in OPERATIONS.items():
    _register(_name, _operation)
