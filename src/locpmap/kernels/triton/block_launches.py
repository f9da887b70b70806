"""Launches of a sweep over blocks: one per run of blocks that do not touch and are solved by the same method."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from locpmap.arrays import Array
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.cache import cached
from locpmap.kernels.model import Model


class Run(NamedTuple):
    """Range ``order[begin:stop]`` of blocks without common sites or edges, all solved by the same method."""

    joint: bool  # by enumeration, else by dynamic programming
    begin: int
    stop: int


class PlacedPlan(NamedTuple):
    """A block plan on the device (B blocks, P families of disjoint blocks), in the form that kernels take."""

    order: torch.Tensor  # (B,) int32: blocks sorted by run
    ptr: torch.Tensor
    site: torch.Tensor
    parent: torch.Tensor
    parent_slot: torch.Tensor
    family: torch.Tensor  # (B,) int32
    block_of: torch.Tensor
    stride: torch.Tensor  # (P, S) int32: stride of the site's label in the index of a joint labelling


class State(NamedTuple):
    """The state of a climb by blocks, in the form that kernels take."""

    labels: torch.Tensor  # (n, S, R)
    changed: torch.Tensor  # (n, R): the last sweep that changed each sample
    stamps: torch.Tensor  # (n, B, R): the last turn (number of a launch, from 1) that changed each block
    n_sites: int
    n_samples: int
    n_blocks: int
    n_runs: int  # runs per sweep


def launches(model: Model, plan: BlockPlan) -> tuple[PlacedPlan, list[Run]]:
    """Return a plan on the device and the runs of a sweep; cached while the plan's arrays exist."""
    purpose = ("climb", model.unary.shape[2], model.unary.device)
    return cached((plan.ptr, model.neighbour), purpose, lambda: _launches(model, plan))


def _launches(model: Model, plan: BlockPlan) -> tuple[PlacedPlan, list[Run]]:
    joint = plan.joint
    colour = _colours(model.indptr.cpu().numpy(), model.neighbour.cpu().numpy(), plan.block_of, plan.family)
    order = np.lexsort((joint, colour))
    changes = (np.diff(colour[order]) != 0) | (np.diff(joint[order]) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(joint)]
    runs = [Run(bool(joint[order[a]]), a, b) for a, b in pairwise(cuts)]
    return place_plan(plan, order, model.unary.shape[2], model.unary.device), runs


def place_plan(plan: BlockPlan, order: Array, n_labels: int, device: torch.device) -> PlacedPlan:
    """Return a plan on the device, with blocks in the given order."""
    lengths = np.diff(plan.ptr)
    block = np.repeat(np.arange(len(lengths)), lengths)
    steps_after = plan.ptr[1:][block] - 1 - np.arange(len(block))
    stride = np.zeros(plan.block_of.shape, np.int32)
    stride[plan.family[block], plan.site] = n_labels ** np.where(plan.joint[block], steps_after, 0)
    parts = (order.astype(np.int32), *plan[:4], plan.family, plan.block_of, stride)
    return PlacedPlan(*(torch.from_numpy(np.array(part)).to(device) for part in parts))


def _colours(indptr: Array, neighbour: Array, block_of: Array, family: Array) -> Array:
    """Return non-decreasing colours (B,); a new one starts at a block that touches or overlaps one of the current."""
    before = np.full(len(family), -1)  # for each block, the last earlier block that it touches
    here = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    for blocks in block_of:
        own, other = blocks[here], blocks[neighbour]
        earlier = other < own
        np.maximum.at(before, own[earlier], other[earlier])
    new = np.flatnonzero(np.diff(family)) + 1
    before[new] = new - 1
    colours, begin, colour = np.empty(len(family), np.int64), 0, 0
    for b, touched in enumerate(before.tolist()):
        if touched >= begin:
            begin, colour = b, colour + 1
        colours[b] = colour
    return colours
