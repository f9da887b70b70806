"""Negative log conditionals of blocks and their slopes in tensors; see the reference for the definition.

Blocks of one shape are solved together: forests position by position, enumerated ones with all labellings at once.
Only the value is written down: the slopes are its derivatives by reverse differentiation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.observations import Observations
from locpmap.kernels.torch.linear_scores import add_slopes, chunks, edge_tables, local_scores, parameters, slots_of
from locpmap.kernels.torch.placement import device, on_device

Array = npt.NDArray[Any]


def block_likelihood(
    data: Observations,
    plan: BlockPlan,
    labels: Array,
    image_weights: Array,
    weights: Array,
    tables: Array,
    value: Array,
    slope: Array,
    table_slope: Array,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and blocks begin..stop."""
    n_features, n_labels = tables.shape[1:3]
    u, t = parameters(weights, tables)
    for blocks in alike(plan, begin, stop):  # B blocks of J sites each
        positions = plan.ptr[blocks][:, None] + np.arange(plan.ptr[blocks[0] + 1] - plan.ptr[blocks[0]])
        sites = plan.site[positions].ravel()
        slots, row = slots_of(data, sites)
        inside = same_block(plan, blocks, positions.shape[1], data.neighbour[slots], row)
        joint = bool(plan.joint[blocks[0]])
        states = n_labels ** positions.shape[1] if joint else n_labels**2
        for images in chunks(lo, hi, len(slots) * max(n_features * n_labels, states)):
            known = on_device(labels[images])
            around = torch.where(on_device(inside), -1, known[:, on_device(data.neighbour[slots]).long()])
            local = local_scores(data, images, sites, slots, row, around[:, :, None], u, t)
            local = local.reshape(-1, *positions.shape, n_labels)
            true = known[:, on_device(sites).long()].long().reshape(local.shape[:3])
            if joint:
                loss = by_enumeration(data, images, local, t, true, slots[inside], row[inside], sites)
            else:
                loss = by_elimination(data, images, local, t, true, plan, positions)
            importance = on_device(image_weights[images] if len(image_weights) > 1 else image_weights)
            add_slopes((importance[:, None] * loss).sum(), u, t, value, slope, table_slope)


def alike(plan: BlockPlan, begin: int, stop: int) -> list[Array]:
    """Blocks begin..stop in groups with the same number of sites, way of solving and parents."""
    groups: dict[tuple[bool, bytes], list[int]] = {}
    for b in range(begin, stop):
        shape = bool(plan.joint[b]), plan.parent[plan.ptr[b] : plan.ptr[b + 1]].tobytes()
        groups.setdefault(shape, []).append(b)
    return [np.array(blocks) for blocks in groups.values()]


def same_block(plan: BlockPlan, blocks: Array, length: int, neighbour: Array, row: Array) -> Array:
    """Whether the neighbour at each slot is in the block that the slot's site, ``sites[row]``, is taken for."""
    first = plan.site[plan.ptr[blocks]]
    family = (plan.block_of[:, first] == blocks).argmax(axis=0)
    block = row // length
    return plan.block_of[family[block], neighbour] == blocks[block]


def by_elimination(
    data: Observations,
    images: slice,
    local: torch.Tensor,
    tables: torch.Tensor,
    true: torch.Tensor,
    plan: BlockPlan,
    positions: Array,
) -> torch.Tensor:
    """``-log p(true)`` (n, B) of forests with the same parents, from the last site to the roots."""
    belief = list(local.unbind(2))  # J of (n, B, L)
    loss = torch.zeros(local.shape[:2], dtype=torch.float64, device=device())
    parent = plan.parent[positions[0]]
    for j in range(len(parent) - 1, -1, -1):
        here = true[:, :, j]
        alone = surprise(belief[j], here)
        if parent[j] >= 0:
            up = int(parent[j])
            there = true[:, :, up]
            bound = (here >= 0) & (there >= 0)
            scores = belief[j][:, :, None] + edge_tables(data, images, plan.parent_slot[positions[:, j]], tables).mT
            belief[up] = belief[up] + torch.where(bound[:, :, None], scores.logsumexp(3), 0.0)
            given = there.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, local.shape[3])
            alone = torch.where(bound, surprise(scores.gather(2, given)[:, :, 0], here), alone)
        loss = loss + torch.where(here >= 0, alone, 0.0)
    return loss


def surprise(scores: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """``-log p(true)`` (n, B) of scores (n, B, K); anything where true is void."""
    return -scores.log_softmax(2).gather(2, true.clamp(min=0)[:, :, None])[:, :, 0]


def by_enumeration(
    data: Observations,
    images: slice,
    local: torch.Tensor,
    tables: torch.Tensor,
    true: torch.Tensor,
    slots: Array,
    row: Array,
    sites: Array,
) -> torch.Tensor:
    """``-log p(true)`` (n, B) of blocks from their K joint labellings; a void site has label 0 in each that counts."""
    length, n_labels = local.shape[2:]
    labellings = np.indices((n_labels,) * length).reshape(length, -1)  # (J, K), last site fastest
    present = true >= 0
    totals = torch.zeros((*local.shape[:2], labellings.shape[1]), dtype=torch.float64, device=device())
    for site, label in enumerate(labellings):
        scores = local[:, :, site, on_device(label)]
        void = torch.where(on_device(label) > 0, -torch.inf, 0.0)
        totals = totals + torch.where(present[:, :, site, None], scores, void)
    block, j = np.divmod(row, length)
    k = (sites.reshape(-1, length)[block] == data.neighbour[slots][:, None]).argmax(axis=1)
    once = k < j
    block, j, k = block[once], j[once], k[once]
    pairs = edge_tables(data, images, slots[once], tables).flatten(2)  # (n, inner edges, L²)
    pairs = pairs.gather(2, on_device(labellings[j] * n_labels + labellings[k]).expand(len(pairs), -1, -1))
    bound = present[:, on_device(block), on_device(j)] & present[:, on_device(block), on_device(k)]
    totals = totals.index_add(1, on_device(block), torch.where(bound[:, :, None], pairs, 0.0))
    place = on_device(n_labels ** np.arange(length - 1, -1, -1))
    return surprise(totals, (true.clamp(min=0) * place).sum(2))
