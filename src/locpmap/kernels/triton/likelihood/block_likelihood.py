"""Negative log conditionals of blocks and their derivatives; see the reference for the definition.

There are three steps: scores given the labels around the blocks; then each block by itself (a forest by dynamic
programming, a small block by enumeration); then the gradients of the edges inside.  ``plan`` holds NumPy arrays: it
determines the launches, so it stays on the host.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.likelihood import Losses, Part, Scores
from locpmap.kernels.model import Array
from locpmap.kernels.triton.block_launches import Task, place_plan
from locpmap.kernels.triton.cache import cached
from locpmap.kernels.triton.likelihood.forest_likelihood import solve_forests
from locpmap.kernels.triton.likelihood.joint_likelihood import solve_joint
from locpmap.kernels.triton.likelihood.pair_gradient import add_edge_gradients
from locpmap.kernels.triton.local_scores import local_scores, pairs_of, sizes_of

MAX_PAIRS = 1 << 27  # limit of the pair derivatives held together


def block_likelihood(
    scores: Scores, plan: BlockPlan, labels: Array, weights: Array, losses: Losses, part: Part
) -> None:
    """Write losses and residuals of the blocks of a part, and add that of their edges to ``losses.gradient``."""
    lo, hi, begin, stop = part
    if lo >= hi or begin >= stop:
        return
    n_sites, n_labels = scores.unary.shape[1:]
    n_edges, device = len(scores.edges), labels.device
    order = begin + np.argsort(plan.joint[begin:stop], kind="stable")
    purpose = ("likelihood", begin, stop, n_labels, device)
    placed = cached((plan.ptr,), purpose, lambda: place_plan(plan, order, n_labels, device))
    n_forests = int((~plan.joint[begin:stop]).sum())
    lengths, sizes = np.diff(plan.ptr)[order], sizes_of(scores, 1024, 128)
    block_of, stride = placed.block_of[plan.family[begin]], placed.stride[plan.family[begin]]
    labels, terms = labels.contiguous(), pairs_of(scores)
    per_image = n_edges * (1 if scores.potts else n_labels**2)
    images = max(1, MAX_PAIRS // max(per_image, 1))
    for first in range(lo, hi, images):
        last = min(first + images, hi)
        local = torch.zeros((last - first, n_sites, n_labels), dtype=scores.unary.dtype, device=device)
        grid = ((last - first) * triton.cdiv(n_sites, sizes.items),)
        _local_scores[grid](scores.unary, terms, labels, block_of, local, first, n_sites, sizes)
        shape = (last - first, n_edges, *(() if scores.potts else (n_labels, n_labels)))
        pairs = torch.zeros(shape, dtype=scores.unary.dtype, device=device)
        arrays = (block_of, stride, labels, weights, local, losses.value, losses.residual, pairs)
        task = Task(*arrays, n_edges, len(plan.joint), int(len(weights) > 1))
        for solve, a, b in ((solve_forests, 0, n_forests), (solve_joint, n_forests, len(order))):
            if a < b:
                solve(scores, terms, placed, task, (first, last), (a, b), int(lengths[a:b].max()))
        add_edge_gradients(scores, pairs, losses.gradient, Part(first, last, 0, n_edges))


@triton.jit(do_not_specialize=["lo"])
def _local_scores(unary, pairs, labels, block_of, local, lo, n_sites, SIZES: tl.constexpr):
    """Write the scores of sites given the labels around their blocks, (n, S, L)."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    k = tl.arange(0, SIZES.labels)[None, :]
    per_image = tl.cdiv(n_sites, SIZES.items)
    n = lo + (tl.program_id(0) // per_image).to(tl.int64)
    i = (tl.program_id(0) % per_image) * SIZES.items + tl.arange(0, SIZES.items).to(tl.int64)
    own, around = unary + n * n_sites * N_LABELS, labels + n * n_sites
    scores = local_scores(own, pairs, around, 1, block_of, n, i, i < n_sites, SIZES)
    place = local + ((n - lo) * n_sites + i)[:, None] * N_LABELS + k
    tl.store(place, scores, mask=(i < n_sites)[:, None] & (k < N_LABELS))
