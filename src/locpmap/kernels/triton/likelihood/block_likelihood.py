"""Negative log conditionals of blocks and their derivatives; see the reference for the definition.

``plan`` holds NumPy arrays: it determines the launches, so it stays on the host.

Chains and other forests are solved by sums from the leaves to the roots, then marginals from the roots down.  Items are
the blocks of an image.  A first launch fills ``local`` (n, S, L) with scores given the labels around the blocks.  The
upward pass adds messages to it: a site's belief is its scores with all sites below summed out.  The downward pass
recomputes the table of a site given its parent from these beliefs, and replaces them by marginals.

Small blocks are solved by enumeration of all joint labellings; a program processes one block of an image.  The
derivative with respect to a joint labelling's score is its probability, minus 1 for the true labelling.  Residuals and
gradients are sums of these derivatives over the labellings.  Only labellings with label 0 at void sites count.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.cache import cached
from locpmap.kernels.likelihood import Losses, Part, Scores
from locpmap.kernels.model import Array
from locpmap.kernels.triton.block_launches import place_plan
from locpmap.kernels.triton.likelihood.pair_gradient import add_edge_gradients
from locpmap.kernels.triton.local_scores import add_joint_scores, local_scores, pair_scores, pairs_of, sizes_of

MAX_PAIRS = 1 << 27  # limit of the pair derivatives held together


class Task(NamedTuple):
    """Inputs and outputs of one launch, which solves blocks of one family."""

    labels: torch.Tensor  # (N, S)
    weights: torch.Tensor  # (1|N,)
    value: torch.Tensor  # (N, B)
    residual: torch.Tensor  # (N, S, 1, L)
    pairs: torch.Tensor  # derivatives with respect to the edges' scores: (n, E), or (n, E, L, L)
    n_sites: int
    n_edges: int
    n_blocks: int
    weight_image: int  # stride between images


def block_likelihood(
    scores: Scores, plan: BlockPlan, labels: Array, weights: Array, losses: Losses, part: Part
) -> None:
    """Write losses and residuals of the blocks of a part, and add that of their edges to ``losses.gradient``."""
    lo, hi, begin, stop = part
    if lo >= hi or begin >= stop:
        return
    unary, n_edges, device = scores.unary, len(scores.edges), labels.device
    n_sites, n_labels = unary.shape[1:]
    purpose = ("likelihood", begin, stop, n_labels, device)
    placed, forests, joint = cached((plan.ptr,), purpose, lambda: _placed(plan, begin, stop, n_labels, device))
    labels, terms = labels.contiguous(), pairs_of(scores)
    tables = () if scores.potts else (n_labels, n_labels)
    images = max(1, MAX_PAIRS // max(n_edges * n_labels ** len(tables), 1))
    for first in range(lo, hi, images):
        n_images = min(images, hi - first)
        pairs = torch.zeros((n_images, n_edges, *tables), dtype=unary.dtype, device=device)
        counts = (n_sites, n_edges, len(plan.joint), int(len(weights) > 1))
        task = Task(labels, weights, losses.value, losses.residual, pairs, *counts)
        if len(forests) > 0:
            sizes = sizes_of(scores, 1024, 128)
            local = torch.empty((n_images, n_sites, n_labels), dtype=unary.dtype, device=device)
            grid = (n_images * triton.cdiv(n_sites, sizes.items),)
            _local_scores[grid](unary, terms, labels, placed.block_of[plan.family[begin]], local, first, n_sites, sizes)
            sizes = sizes_of(scores, 512, 16)
            grid = (n_images * triton.cdiv(len(forests), sizes.items),)
            _solve_forests[grid](terms, placed, task, local, first, len(forests), int(forests.max()), sizes)
        if len(joint) > 0:
            sizes = sizes_of(scores, 1024, triton.next_power_of_2(n_labels ** int(joint.max())))
            _solve_joint[(n_images * len(joint),)](unary, terms, placed, task, first, len(forests), len(joint), sizes)
        add_edge_gradients(scores, pairs, losses.gradient, Part(first, first + n_images, 0, n_edges))


def _placed(plan: BlockPlan, begin: int, stop: int, n_labels: int, device: torch.device) -> tuple[Any, Array, Array]:
    """Return blocks on the device, forests before joint blocks, and the number of sites of each forest and the rest."""
    joint = plan.joint[begin:stop]
    order = begin + np.argsort(joint, kind="stable")
    forests, rest = np.split(np.diff(plan.ptr)[order], [len(joint) - joint.sum()])
    return place_plan(plan, order, n_labels, device), forests, rest


@triton.jit(do_not_specialize=["lo"])
def _local_scores(unary, pairs, labels, block_of, local, lo, n_sites, SIZES: tl.constexpr):
    """Write the scores of sites given the labels around their blocks, (n, S, L)."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    k = tl.arange(0, SIZES.labels)[None, :]
    per_image = tl.cdiv(n_sites, SIZES.items)
    n = lo + (tl.program_id(0) // per_image).to(tl.int64)
    i = (tl.program_id(0) % per_image) * SIZES.items + tl.arange(0, SIZES.items).to(tl.int64)
    own, around = unary + n * n_sites * N_LABELS, (labels + n * n_sites, 1, block_of)
    scores = local_scores(own, around, pairs, n, i, i < n_sites, SIZES)
    place = local + ((n - lo) * n_sites + i)[:, None] * N_LABELS + k
    tl.store(place, scores, mask=(i < n_sites)[:, None] & (k < N_LABELS))


@triton.jit
def _load_sites(plan, labels, local, begin, stop, position, SIZES: tl.constexpr):
    """Load the sites at a position of their blocks: numbers, labels, beliefs; slots, numbers and labels of the parents.

    Labels of void and of missing sites are -1.  So are a parent's slot and label, at a root and if the parent is void.
    """
    k = tl.arange(0, SIZES.labels)[None, :]
    t = begin + position
    i = tl.load(plan.site + t, mask=t < stop, other=0).to(tl.int64)
    true = tl.load(labels + i, mask=t < stop, other=-1).to(tl.int32)
    held = (true >= 0)[:, None] & (k < SIZES.n_labels)
    belief = tl.load(local + i[:, None] * SIZES.n_labels + k, mask=held, other=0.0)
    belief = tl.where(k < SIZES.n_labels, belief, float("-inf"))
    upward = tl.load(plan.parent_slot + t, mask=true >= 0, other=-1).to(tl.int64)
    above = begin + tl.load(plan.parent + t, mask=upward >= 0, other=0)
    above = tl.load(plan.site + above, mask=upward >= 0, other=0).to(tl.int64)
    true_above = tl.load(labels + above, mask=upward >= 0, other=-1).to(tl.int32)
    return i, true, belief, tl.where(true_above >= 0, upward, -1), above, true_above


@triton.jit(do_not_specialize=["lo", "n_forests", "longest"])
def _solve_forests(pairs, plan, task, local, lo, n_forests, longest, SIZES: tl.constexpr):
    """Solve blocks ``order[:n_forests]``, of at most ``longest`` sites, of images ``lo ..``."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    LABELS: tl.constexpr = SIZES.labels
    ITEMS: tl.constexpr = SIZES.items
    dtype: tl.constexpr = local.dtype.element_ty
    n_sites = task.n_sites
    k = tl.arange(0, LABELS)[None, :]
    per_image = tl.cdiv(n_forests, ITEMS)
    n = lo + (tl.program_id(0) // per_image).to(tl.int64)
    item = (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS)
    real = item < n_forests
    b = tl.load(plan.order + item, mask=real, other=0)
    weight = tl.load(task.weights + n * task.weight_image).to(dtype)
    known_labels = task.labels + n * n_sites
    local += (n - lo) * n_sites * N_LABELS
    residual = task.residual + n * n_sites * N_LABELS
    begin = tl.load(plan.ptr + b, mask=real, other=0)
    stop = tl.load(plan.ptr + b + 1, mask=real, other=0)
    position = longest - 1
    while position >= 0:
        _, _, belief, upward, above, _ = _load_sites(plan, known_labels, local, begin, stop, position, SIZES)
        message = tl.zeros([ITEMS, LABELS], dtype)
        for a in range(N_LABELS):
            scores = belief + pair_scores(pairs, n, upward[:, None], k, a, SIZES)
            peak = tl.max(scores, axis=1, keep_dims=True)
            log_sum = peak + tl.log(tl.sum(tl.exp(scores - peak), axis=1, keep_dims=True))
            message = tl.where(k == a, log_sum, message)
        # Additive constants cancel; relative to the maximum, single precision suffices for any number of sites.
        message -= tl.max(tl.where(k < N_LABELS, message, float("-inf")), axis=1, keep_dims=True)
        up = local + above[:, None] * N_LABELS + k
        sent = (upward >= 0)[:, None] & (k < N_LABELS)
        tl.debug_barrier()
        gathered = tl.load(up, mask=sent, other=0.0) + message
        tl.debug_barrier()
        tl.store(up, gathered, mask=sent)
        tl.debug_barrier()  # other threads may read what these stored
        position -= 1
    value = tl.zeros([ITEMS], dtype)
    position = 0
    while position < longest:
        sites = _load_sites(plan, known_labels, local, begin, stop, position, SIZES)
        i, true, belief, upward, above, true_above = sites
        bound, is_true = upward >= 0, k == true[:, None]
        edge = tl.load(pairs.edge + upward, mask=bound, other=0).to(tl.int64)
        is_first = tl.load(pairs.end + upward, mask=bound, other=0) == 0
        own_stride, other_stride = tl.where(is_first, N_LABELS, 1), tl.where(is_first, 1, N_LABELS)
        pair = (n - lo) * task.n_edges + edge
        node, agree = tl.zeros([ITEMS, LABELS], dtype), tl.zeros([ITEMS], dtype)
        for a in range(N_LABELS):
            scores = belief + pair_scores(pairs, n, upward[:, None], k, a, SIZES)
            scores -= tl.max(scores, axis=1, keep_dims=True)
            log_p = scores - tl.log(tl.sum(tl.exp(scores), axis=1, keep_dims=True))
            # A root is treated as if its parent had label 0 with probability 1.
            p_above = tl.load(local + above * N_LABELS + a, mask=bound, other=0.0)
            p_above = tl.where(bound, p_above, tl.where(a == 0, 1.0, 0.0))
            given = tl.maximum(true_above, 0) == a
            value -= tl.where((true >= 0) & given, tl.sum(tl.where(is_true, log_p, 0.0), axis=1), 0.0)
            joint = tl.where(k < N_LABELS, tl.exp(log_p) * p_above[:, None], 0.0)
            node += joint
            part = weight * (joint - (is_true & given[:, None]).to(dtype))
            if SIZES.potts:
                agree += tl.sum(tl.where(k == a, part, 0.0), axis=1)
            else:
                cell = pair * N_LABELS * N_LABELS + a * other_stride
                place = task.pairs + cell[:, None] + k * own_stride[:, None]
                tl.store(place, part, mask=bound[:, None] & (k < N_LABELS))
        if SIZES.potts:
            tl.store(task.pairs + pair, agree, mask=bound)
        row, held = i[:, None] * N_LABELS + k, (true >= 0)[:, None] & (k < N_LABELS)
        tl.store(residual + row, weight * (node - is_true.to(dtype)), mask=held)
        tl.debug_barrier()  # other threads may still read the beliefs
        tl.store(local + row, node, mask=held)
        tl.debug_barrier()  # other threads may read what these stored
        position += 1
    tl.store(task.value + n * task.n_blocks + b, weight * value, mask=real)


@triton.jit
def _add(at, parts, known):
    """Add ``parts`` to the program's memory at ``at``."""
    total = tl.load(at, mask=known, other=0.0) + parts
    tl.debug_barrier()
    tl.store(at, total, mask=known)
    tl.debug_barrier()  # another thread may read it next


@triton.jit(do_not_specialize=["lo", "first", "n_joint"])
def _solve_joint(unary, pairs, plan, task, lo, first, n_joint, SIZES: tl.constexpr):
    """Solve blocks ``order[first:first + n_joint]`` of images ``lo ..``."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    STATES: tl.constexpr = SIZES.items
    dtype: tl.constexpr = unary.dtype.element_ty
    n_sites = task.n_sites
    k = tl.arange(0, SIZES.labels)[None, :]
    n = lo + (tl.program_id(0) // n_joint).to(tl.int64)
    b = tl.load(plan.order + first + tl.program_id(0) % n_joint)
    weight = tl.load(task.weights + n * task.weight_image).to(dtype)
    labels = task.labels + n * n_sites
    given = (plan, pairs, unary + n * n_sites * N_LABELS, labels, 1, n, b)
    family = tl.load(plan.family + b).to(tl.int64) * n_sites
    strides = plan.stride + family
    begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
    n_states = tl.load(strides + tl.load(plan.site + begin)) * N_LABELS
    true_state = tl.zeros([], tl.int32)
    t = begin
    while t < stop:
        i = tl.load(plan.site + t).to(tl.int64)
        true_state += tl.maximum(tl.load(labels + i).to(tl.int32), 0) * tl.load(strides + i)
        t += 1
    # The log partition by log-sum-exp.  At least one labelling is allowed, so the peak is finite.
    peak = tl.full([1], float("-inf"), dtype)
    mass, true_total = tl.zeros([1], dtype), tl.zeros([1], dtype)
    first_state = tl.zeros([], tl.int32)
    while first_state < n_states:
        state = first_state + tl.arange(0, STATES)
        totals = tl.where(state < n_states, tl.zeros([STATES], dtype), float("-inf"))
        totals = add_joint_scores(totals, *given, state, n_sites, SIZES)
        true_total += tl.sum(tl.where(state == true_state, totals, 0.0), axis=0)
        higher = tl.maximum(peak, tl.max(totals, axis=0))
        finite = tl.where(higher > float("-inf"), higher, 0.0)
        mass = mass * tl.exp(peak - finite) + tl.sum(tl.exp(totals - finite), axis=0)
        peak = higher
        first_state += STATES
    log_partition = peak + tl.log(mass)
    loss = weight * (log_partition - true_total)
    tl.store(task.value + n * task.n_blocks + b + tl.zeros([1], tl.int32), loss)
    first_state = tl.zeros([], tl.int32)
    while first_state < n_states:
        state = first_state + tl.arange(0, STATES)
        totals = tl.where(state < n_states, tl.zeros([STATES], dtype), float("-inf"))
        totals = add_joint_scores(totals, *given, state, n_sites, SIZES)
        derivative = weight * (tl.exp(totals - log_partition) - (state == true_state).to(dtype))
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            stride = tl.load(strides + i)
            own = (state // stride) % N_LABELS
            if tl.load(labels + i) >= 0:
                each = tl.where(own[:, None] == k, derivative[:, None], 0.0)  # (STATES, LABELS)
                at = task.residual + (n * n_sites + i) * N_LABELS + k
                _add(at, tl.sum(each, axis=0, keep_dims=True), k < N_LABELS)
                slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
                while slot < last:
                    near = tl.load(pairs.neighbour + slot).to(tl.int64)
                    inside = (tl.load(plan.block_of + family + near) == b) & (tl.load(labels + near) >= 0)
                    near_stride = tl.load(strides + near)
                    if inside & (near_stride > stride):  # count each edge once
                        other = (state // near_stride) % N_LABELS
                        pair = (n - lo) * task.n_edges + tl.load(pairs.edge + slot).to(tl.int64)
                        if SIZES.potts:
                            agree = tl.sum(tl.where(own == other, derivative, 0.0), axis=0)
                            _add(task.pairs + pair + tl.zeros([1], tl.int32), agree, True)
                        else:
                            is_first = tl.load(pairs.end + slot) == 0
                            own_stride = tl.where(is_first, N_LABELS, 1)
                            other_stride = tl.where(is_first, 1, N_LABELS)
                            for a in range(N_LABELS):
                                part = tl.sum(tl.where((other == a)[:, None], each, 0.0), axis=0, keep_dims=True)
                                cell = pair * N_LABELS * N_LABELS + a * other_stride + k * own_stride
                                _add(task.pairs + cell, part, k < N_LABELS)
                    slot += 1
            t += 1
        first_state += STATES
