"""Negative log conditionals of blocks and their slopes; see the reference for the definition.

As for sites, programs add to sums of their own.  ``plan`` holds NumPy arrays: it says what to launch.
"""

from __future__ import annotations

import numpy as np
import torch
import triton

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.binary_chains import add_binary_chains, chains_of
from locpmap.kernels.triton.block_launches import place_plan
from locpmap.kernels.triton.forest_likelihood import add_forests
from locpmap.kernels.triton.joint_likelihood import add_joint
from locpmap.kernels.triton.keeping import kept_with
from locpmap.kernels.triton.linear_scores import add_sums


def block_likelihood(
    data: Observations,
    plan: BlockPlan,
    labels: torch.Tensor,
    image_weights: torch.Tensor,
    weights: torch.Tensor,
    tables: torch.Tensor,
    value: torch.Tensor,
    slope: torch.Tensor,
    table_slope: torch.Tensor,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and blocks begin..stop."""
    families = chains_of(data, plan, tables, begin, stop) if lo < hi else []
    for chains in families:
        add_binary_chains(data, chains, labels, image_weights, weights, tables, value, slope, table_slope, lo, hi)
    if families:
        return
    n_groups, n_features, n_labels, _ = tables.shape
    precision = data.unary.dtype
    order = begin + np.argsort(plan.joint[begin:stop], kind="stable")
    n_joint = int(plan.joint[begin:stop].sum())
    purpose = ("likelihood", begin, stop, n_labels, labels.device)
    placed = kept_with((plan.ptr,), purpose, lambda: place_plan(plan, order, n_labels, labels.device))
    strides = tuple(data.pairwise.stride(axis) if data.pairwise.shape[axis] > 1 else 0 for axis in (0, 1))
    arrays = (data, placed, labels, image_weights, weights.to(precision), tables.to(precision))
    sizes = (*strides, int(len(image_weights) > 1), labels.shape[1], data.unary.shape[2])
    constants = {"N_GROUPS": n_groups, "N_FEATURES": n_features, "N_LABELS": n_labels}
    constants["LABELS"] = triton.next_power_of_2(n_labels)
    lengths = np.diff(plan.ptr)[order]
    for add, first, last in (
        (add_forests, 0, len(order) - n_joint),
        (add_joint, len(order) - n_joint, len(order)),
    ):
        if first < last:
            longest = int(lengths[first:last].max())
            sums = add(arrays, sizes, constants, slope, lo, hi, first, last, longest)
            add_sums(sums, value, slope, table_slope)
