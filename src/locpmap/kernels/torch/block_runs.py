"""What a sweep over blocks does in turn: runs of blocks that do not touch and are solved in the same way."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import Model
from locpmap.kernels.torch.block_likelihood import same_block
from locpmap.kernels.torch.neighbours import Part, kept, part_of, turns

MAX_JOINT = 2**18  # joint labellings of a run's blocks together


class Run(NamedTuple):
    """K blocks of J sites each."""

    joint: bool
    parent: list[int]  # J positions within a block, -1 at a root
    part: Part  # the K · J sites
    inside: torch.Tensor  # (K · J, D) whether the neighbour is in the same block
    earlier: torch.Tensor  # (K · J, D) its position in the block where that is before the site's own, else -1; if joint
    up: Part  # the sites with their parents as their only neighbours


def runs_of(model: Model, plan: BlockPlan) -> list[Run]:
    """The runs of a sweep: worked out once, and kept for as long as the plan lives."""
    return kept(plan.ptr, (model.unary.device,), lambda: _runs(model, plan))


def _runs(model: Model, plan: BlockPlan) -> list[Run]:
    indptr, neighbour = (part.cpu().numpy() for part in (model.indptr, model.neighbour))
    sites = plan.site.tolist()
    turn = turns((sites[a:b] for a, b in pairwise(plan.ptr.tolist())), indptr, neighbour)
    alike: dict[tuple[int, bool, bytes], list[int]] = {}
    for b in np.argsort(turn, kind="stable").tolist():
        shape = (int(turn[b]), bool(plan.joint[b]), plan.parent[plan.ptr[b] : plan.ptr[b + 1]].tobytes())
        alike.setdefault(shape, []).append(b)
    runs = []
    for blocks in alike.values():
        size = int(plan.ptr[blocks[0] + 1] - plan.ptr[blocks[0]])
        most = max(1, MAX_JOINT // model.unary.shape[2] ** size) if plan.joint[blocks[0]] else len(blocks)
        runs += [_run(model, plan, np.array(blocks[a : a + most])) for a in range(0, len(blocks), most)]
    return runs


def _run(model: Model, plan: BlockPlan, blocks: np.ndarray) -> Run:
    device = model.unary.device
    length = int(plan.ptr[blocks[0] + 1] - plan.ptr[blocks[0]])
    places = (plan.ptr[blocks][:, None] + np.arange(length)).ravel()
    sites, parent = plan.site[places].astype(np.int64), plan.parent[places]
    part = part_of(model, torch.from_numpy(sites).to(device))
    neighbour = part.neighbour.cpu().numpy()
    row = np.repeat(np.arange(len(sites)), neighbour.shape[1])
    inside = same_block(plan, blocks, length, neighbour.ravel(), row).reshape(neighbour.shape)
    inside &= part.real.cpu().numpy()
    joint = bool(plan.joint[blocks[0]])
    earlier = _earlier(sites, length, neighbour, inside) if joint else inside[:0]
    slots = torch.from_numpy(np.maximum(plan.parent_slot[places], 0).astype(np.int64)).to(device)[:, None]
    has_parent = torch.from_numpy(parent >= 0).to(device)[:, None]
    up = part._replace(slots=slots, real=has_parent)
    among = [torch.from_numpy(array).to(device) for array in (inside, earlier)]
    return Run(joint, parent[:length].tolist(), part, among[0], among[1], up)


def _earlier(sites: np.ndarray, length: int, neighbour: np.ndarray, inside: np.ndarray) -> np.ndarray:
    place = np.arange(len(sites))
    together = sites.reshape(-1, length)[place // length]  # (K · J, J) the sites of each one's block
    position = (together[:, None] == neighbour[:, :, None]).argmax(axis=2)
    return np.where(inside & (position < place[:, None] % length), position, -1)
