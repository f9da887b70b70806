"""What is a kernel of its own where tensors lie on a GPU, and torch's operations elsewhere."""

from __future__ import annotations

import math
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from locpmap.nn.potentials import VOID, Edges, Field, local_scores, negative_log_probability


def site_losses(field: Field, samples: Tensor) -> Tensor:
    """``-log mean_m p(y_i | y^m_¬i)``, (N, H, W), with the labels around, (M, N, H, W); 0 at void sites."""
    if kernels_run_on(field.scores.device.type):
        edges, steps = _couplings(field)
        return torch.ops.locpmap.grid_losses(field.scores, edges, field.labels, samples, steps)
    return site_losses_of_operations(field, samples)


def site_losses_of_operations(field: Field, samples: Tensor) -> Tensor:
    """The same by torch's operations: O(M·N·H·W·K) memory."""
    losses = negative_log_probability(local_scores(field, samples), field.labels.expand(samples.shape))
    if len(samples) == 1:
        return losses[0]
    return torch.where(field.labels == VOID, 0, math.log(len(samples)) - (-losses).logsumexp(0))


def climb(field: Field, perturbed: Tensor, labels: Tensor, max_sweeps: int) -> Tensor:
    """Local maxima of perturbed scores (M, N, H, W, K) from labels (M, N, H, W), which are not kept; -1 stays.

    Red-black, all samples and images at once, until a sweep changes nothing or ``max_sweeps`` have been made.
    """
    if kernels_run_on(perturbed.device.type):
        edges, steps = _couplings(field)
        scores, labels = perturbed.contiguous(), labels.contiguous()
        import_module("locpmap.kernels.triton.climb_grid").climb_grid(scores, edges, steps, max_sweeps, labels)
        return labels
    return climb_of_operations(field, perturbed, labels, max_sweeps)


def climb_of_operations(field: Field, perturbed: Tensor, labels: Tensor, max_sweeps: int) -> Tensor:
    """The same by torch's operations, which ask the device after every sweep whether there was a change."""
    noisy, void = field._replace(scores=perturbed), labels == VOID
    rows, columns = (torch.arange(n, device=labels.device) for n in labels.shape[-2:])
    black = (rows[:, None] + columns) % 2 == 1
    for _ in range(max_sweeps):
        before = labels
        for colour in (~black, black):
            best = local_scores(noisy, labels).argmax(-1)
            labels = torch.where(colour & ~void, best, labels)
        if torch.equal(labels, before):
            break
    return labels


def row_log_partitions(scores: Tensor, edges: Edges, joined: Tensor) -> Tensor:
    """The log partition of every row as a chain, (N, H), cut where neighbours are not ``joined`` (N, H, W-1)."""
    if kernels_run_on(scores.device.type):
        return torch.ops.locpmap.chain_log_partitions(scores, edges.values, joined)[0]
    return row_log_partitions_of_operations(scores, edges, joined)


def row_log_partitions_of_operations(scores: Tensor, edges: Edges, joined: Tensor) -> Tensor:
    """The same by torch's operations, one step per column."""
    n_labels = scores.shape[-1]
    per_column = edges.values.expand(-1, -1, joined.shape[2], *edges.values.shape[3:])
    first, *rest = scores.unbind(2)
    forward = first
    for score, values, join in zip(rest, per_column.unbind(2), joined.unbind(2), strict=True):
        table = Edges(values[:, :, None]).where(join[:, :, None]).tables(n_labels)[:, :, 0]
        forward = (forward[..., :, None] + table).logsumexp(-2) + score
    return forward.logsumexp(-1)


def _couplings(field: Field) -> tuple[list[Tensor], list[int]]:
    """Pairwise terms and steps as kernels take them."""
    return [edges.values for edges in field.edges], [by for step in field.steps for by in step]


@torch.compiler.assume_constant_result
def kernels_run_on(device: str) -> bool:
    """Whether Triton's kernels, which are then registered with torch, take tensors there."""
    if find_spec("triton") is None:
        return False
    if device != "cuda" and not import_module("triton").knobs.runtime.interpret:
        return False
    import_module("locpmap.kernels.triton.loss_operators")
    return True
