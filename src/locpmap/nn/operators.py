"""The likelihood kernels as custom torch operators with gradients.

Tensors on an NVIDIA GPU use the Triton kernels if Triton is installed. All other tensors use the Numba kernels, without
a copy if they are contiguous and on the CPU. Second derivatives are not available: autograd would take the gradients
for constants.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locpmap.arrays import current_device
from locpmap.errors import InputError
from locpmap.features.features import wiring_of
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.likelihood import JOB_SITES, Scores
from locpmap.kernels.placement import Job, place
from locpmap.kernels.spec import Kernels
from locpmap.nn.potentials import structure_of


@torch.library.custom_op("locpmap::site_losses", mutates_args=())
def site_losses(
    unary: Tensor, pairwise: Tensor, labels: Tensor, samples: Tensor, shape: Sequence[int], form: str
) -> tuple[Tensor, Tensor]:
    """Return ``-log mean_m p(y_i | y^m)``, (N, S), and its gradient in the local scores, (N, S, M, K).

    Args:
        unary: Unary scores (N, S, K).
        pairwise: Pairwise scores: (1|N, E) for form "weights"; (1, D, K, K), one table per step, for "tables";
            (1|N, E, K, K) for "edge tables".
        labels: True labels (N, S), int16, -1 at void sites.
        samples: Sampled labels (N, S, M), int16, -1 at sites that do not influence their neighbours.
        shape: Grid or volume as `locpmap.nn.potentials.Field.numbers`.
        form: Form of ``pairwise``.
    """
    with _backend(unary, pairwise, shape, form) as (kernels, scores, placed):
        found = kernels.site_losses(scores, placed(labels), placed(samples), placed(unary.new_ones(1, 1)))
    return _tensor(found.value, unary), _tensor(found.residual, unary)


@torch.library.custom_op("locpmap::pair_gradient", mutates_args=())
def pair_gradient(pairwise: Tensor, samples: Tensor, residual: Tensor, shape: Sequence[int], form: str) -> Tensor:
    """Return the gradient in the pairwise scores.  ``residual`` is the gradient in the local scores, per sample."""
    with _backend(residual[:, :, 0], pairwise, shape, form) as (kernels, scores, placed):
        gradient = kernels.pair_gradient(scores, placed(samples), placed(residual))
    return _as_pairwise(gradient, pairwise)


@torch.library.custom_op("locpmap::block_losses", mutates_args=())
def block_losses(
    unary: Tensor, pairwise: Tensor, labels: Tensor, shape: Sequence[int], form: str, blocks: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``-Σ log p(y_β | y_¬β)`` over rows, columns or tiles ("h,w", "d,h,w"), and its gradients in the scores."""
    of_tile = tuple(int(side) for side in blocks.split(",")) if "," in blocks else blocks
    plan = plan_blocks(of_tile, structure_of(shape), unary.shape[2])
    with _backend(unary, pairwise, shape, form) as (kernels, scores, placed):
        found = kernels.block_losses(scores, plan, placed(labels), placed(unary.new_ones(1)))
    total = _tensor(found.value, unary).sum(dtype=torch.float64).to(unary.dtype)
    return total, _tensor(found.residual, unary)[:, :, 0].clone(), _as_pairwise(found.gradient, pairwise)


@site_losses.register_fake
def _(unary: Tensor, pairwise: Tensor, labels: Tensor, samples: Tensor, shape: Any, form: str) -> tuple[Tensor, Tensor]:
    n_images, n_sites, n_labels = unary.shape
    return unary.new_empty(n_images, n_sites), unary.new_empty(n_images, n_sites, samples.shape[2], n_labels)


@pair_gradient.register_fake
def _(pairwise: Tensor, samples: Tensor, residual: Tensor, shape: Any, form: str) -> Tensor:
    return torch.empty_like(pairwise)


@block_losses.register_fake
def _(
    unary: Tensor, pairwise: Tensor, labels: Tensor, shape: Any, form: str, blocks: str
) -> tuple[Tensor, Tensor, Tensor]:
    return unary.new_empty(()), unary.new_empty(unary.shape), pairwise.new_empty(pairwise.shape)


def _save_sites(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, pairwise, _, samples, ctx.shape, ctx.form = inputs
    ctx.save_for_backward(pairwise, samples, output[1])
    ctx.mark_non_differentiable(output[1])


def _refuse_second_derivatives() -> None:
    """Raise InputError in a backward pass with ``create_graph=True``, in which autograd records."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise InputError("create_graph is True, expected False: the losses have no second derivatives")


def _site_gradients(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
    _refuse_second_derivatives()
    pairwise, samples, residual = ctx.saved_tensors
    residual = residual * upstream[:, :, None, None]
    gradient = pair_gradient(pairwise, samples, residual, ctx.shape, ctx.form) if ctx.needs_input_grad[1] else None
    return residual.sum(2), gradient, None, None, None, None


def _save_blocks(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _block_gradients(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
    _refuse_second_derivatives()
    by_unary, by_pairwise = ctx.saved_tensors
    return upstream * by_unary, upstream * by_pairwise, None, None, None, None


site_losses.register_autograd(_site_gradients, setup_context=_save_sites)
block_losses.register_autograd(_block_gradients, setup_context=_save_blocks)


@contextmanager
def _backend(
    unary: Tensor, pairwise: Tensor, shape: Sequence[int], form: str
) -> Iterator[tuple[Kernels, Scores, Callable[[Tensor], Any]]]:
    """Yield the kernels for a device, the scores, and the function that converts tensors to the kernels' arrays.

    Kernels on the CPU use torch's number of threads if there are enough sites.
    """
    n_threads = torch.get_num_threads() if unary[:, :, 0].numel() > JOB_SITES else 1
    kernels = place("auto", "auto", Job(str(unary.device)), n_threads)

    def placed(tensor: Tensor) -> Any:
        tensor = tensor.detach().contiguous()
        return tensor.cpu().numpy() if kernels.device is None else tensor

    potts = form == "weights"
    one, none = unary.new_ones(1, 1, 1), unary.new_empty(0, 0, 0, 1, 1)
    features, tables = (pairwise[..., None], none) if potts else (one, pairwise[:, :, None])
    wiring = _wiring(tuple(shape), form, kernels.device)
    scores = Scores(placed(unary), placed(features), placed(tables), potts, form == "edge tables", *wiring)
    with closing(kernels), current_device(unary):
        yield kernels, scores, placed


@lru_cache(maxsize=16)
def _wiring(shape: tuple[int, ...], form: str, device: str | None) -> tuple[Any, ...]:
    """Return the edges of a grid or volume as arrays, or as tensors on a device; cached."""
    group, *lists = wiring_of(structure_of(shape), False)
    if form == "edge tables":
        group = np.arange(len(group), dtype=np.int32)
    return tuple(torch.tensor(array, device=device) if device else array for array in (group, *lists))


def _tensor(array: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(array).to(like.device, like.dtype)


def _as_pairwise(gradient: Any, pairwise: Tensor) -> Tensor:
    """Sum the gradient, (N, E) or (1|N, G, 1, K, K), to the shape of the pairwise scores."""
    found = _tensor(gradient, pairwise)
    found = found if pairwise.dim() == 2 else found[:, :, 0]
    return found.sum_to_size(pairwise.shape).clone()
