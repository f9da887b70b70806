"""What losses of networks are made of, as operators of torch with slopes.

``torch.ops.locpmap.grid_losses`` are the losses of sites, ``torch.ops.locpmap.chain_log_partitions`` those of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from locpmap.kernels.triton import chain_log_partitions as chains
from locpmap.kernels.triton import grid_loss_slopes as slopes
from locpmap.kernels.triton import grid_losses as losses


@torch.library.custom_op("locpmap::grid_losses", mutates_args=())
def grid_losses(
    scores: Tensor, edges: Sequence[Tensor], labels: Tensor, samples: Tensor, steps: Sequence[int]
) -> Tensor:
    """See :func:`locpmap.kernels.triton.grid_losses.grid_losses`."""
    return losses.grid_losses(scores, edges, labels, samples, steps)


@torch.library.custom_op("locpmap::grid_loss_slopes", mutates_args=())
def grid_loss_slopes(
    upstream: Tensor,
    scores: Tensor,
    edges: Sequence[Tensor],
    labels: Tensor,
    samples: Tensor,
    steps: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, list[Tensor]]:
    """See :func:`locpmap.kernels.triton.grid_loss_slopes.grid_loss_slopes`; it has no slopes of its own."""
    return slopes.grid_loss_slopes(upstream, scores, edges, labels, samples, steps, wanted)


@grid_losses.register_fake
def _(scores: Tensor, edges: Any, labels: Tensor, samples: Any, steps: Any) -> Tensor:
    return scores.new_empty(labels.shape)


@grid_loss_slopes.register_fake
def _(
    upstream: Any,
    scores: Tensor,
    edges: Sequence[Tensor],
    labels: Any,
    samples: Any,
    steps: Any,
    wanted: Sequence[bool],
) -> tuple[Tensor, list[Tensor]]:
    pulls = [edge.new_empty(edge.shape if want else (0,)) for edge, want in zip(edges, wanted, strict=True)]
    return torch.empty_like(losses.in_lines(scores)), pulls


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    scores, edges, labels, samples, ctx.steps = inputs
    ctx.save_for_backward(scores, labels, samples, *edges)


def _slopes(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    scores, labels, samples, *edges = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[1])
    slope, pulls = grid_loss_slopes(upstream, scores, edges, labels, samples, ctx.steps, wanted)
    kept = [pull if want else None for pull, want in zip(pulls, wanted, strict=True)]
    return slope, kept, None, None, None


grid_losses.register_autograd(_slopes, setup_context=_keep)


@torch.library.custom_op("locpmap::chain_log_partitions", mutates_args=())
def chain_log_partitions(scores: Tensor, edges: Tensor, joined: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`locpmap.kernels.triton.chain_log_partitions.chain_log_partitions`; messages have no slopes."""
    return chains.chain_log_partitions(scores, edges, joined)


@torch.library.custom_op("locpmap::chain_marginals", mutates_args=())
def chain_marginals(upstream: Tensor, edges: Tensor, joined: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`locpmap.kernels.triton.chain_log_partitions.chain_marginals`; it has no slopes of its own."""
    return chains.chain_marginals(upstream, edges, joined, messages)


@chain_log_partitions.register_fake
def _(scores: Tensor, edges: Any, joined: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[:2]), scores.new_empty(scores.shape)


@chain_marginals.register_fake
def _(upstream: Any, edges: Tensor, joined: Any, messages: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(messages), edges.new_empty(edges.shape)


def _keep_messages(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, edges, joined = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(edges, joined, output[1])


def _marginals(ctx: Any, upstream: Tensor, _: Any) -> tuple[Any, ...]:
    edges, joined, messages = ctx.saved_tensors
    return *chain_marginals(upstream, edges, joined, messages), None


chain_log_partitions.register_autograd(_marginals, setup_context=_keep_messages)
