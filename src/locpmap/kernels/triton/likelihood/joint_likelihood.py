"""Likelihoods of small blocks by enumeration of all joint labellings; a program processes one block of an image.

The derivative with respect to a joint labelling's score is its probability, minus 1 for the true labelling.  Residuals
and gradients are sums of these derivatives over the labellings.  Only labellings with label 0 at void sites count.
"""

import triton
import triton.language as tl

from locpmap.kernels.likelihood import Scores
from locpmap.kernels.triton.block_launches import PlacedPlan, Range, Task
from locpmap.kernels.triton.local_scores import Pairs, inner_edge, joint_scores, sizes_of


def solve_joint(
    scores: Scores, pairs: Pairs, plan: PlacedPlan, task: Task, images: Range, blocks: Range, longest: int
) -> None:
    """Write losses, residuals and pair derivatives of blocks ``order[blocks]``, of at most ``longest`` sites."""
    n_blocks = blocks[1] - blocks[0]
    sizes = sizes_of(scores, 1024, triton.next_power_of_2(scores.unary.shape[2] ** longest))
    grid, numbers = ((images[1] - images[0]) * n_blocks,), (images[0], blocks[0], n_blocks, scores.unary.shape[1])
    _solve_joint[grid](pairs, plan, task, *numbers, sizes)


@triton.jit
def _totals(pairs, plan, task, n, b, first_state, n_states, labels, local, SIZES: tl.constexpr):
    """Return scores of joint labellings, (STATES,); -inf beyond the last, and where a void site's label is not 0."""
    number = first_state + tl.arange(0, SIZES.items)
    state = number % n_states
    totals = joint_scores(plan, pairs, local, task.block_of, task.stride, labels, n, b, state, SIZES)
    return tl.where(number < n_states, totals, float("-inf"))


@triton.jit
def _add(at, parts, known):
    """Add ``parts`` to the program's memory at ``at``."""
    total = tl.load(at, mask=known, other=0.0) + parts
    tl.debug_barrier()
    tl.store(at, total, mask=known)
    tl.debug_barrier()  # another thread may read it next


@triton.jit(do_not_specialize=["lo", "first", "n_joint"])
def _solve_joint(pairs, plan, task, lo, first, n_joint, n_sites, SIZES: tl.constexpr):
    N_LABELS: tl.constexpr = SIZES.n_labels
    STATES: tl.constexpr = SIZES.items
    dtype: tl.constexpr = task.local.dtype.element_ty
    k = tl.arange(0, SIZES.labels)[None, :]
    n = lo + (tl.program_id(0) // n_joint).to(tl.int64)
    b = tl.load(plan.order + first + tl.program_id(0) % n_joint)
    weight = tl.load(task.weights + n * task.weight_image).to(dtype)
    labels, local = task.labels + n * n_sites, task.local + (n - lo) * n_sites * N_LABELS
    begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
    n_states = tl.load(task.stride + tl.load(plan.site + begin)) * N_LABELS
    true_state = tl.zeros([], tl.int32)
    t = begin
    while t < stop:
        i = tl.load(plan.site + t).to(tl.int64)
        true_state += tl.maximum(tl.load(labels + i).to(tl.int32), 0) * tl.load(task.stride + i)
        t += 1
    # The log partition by log-sum-exp.  At least one labelling is allowed, so the peak is finite.
    peak = tl.full([1], float("-inf"), dtype)
    mass, true_total = tl.zeros([1], dtype), tl.zeros([1], dtype)
    first_state = tl.zeros([], tl.int32)
    while first_state < n_states:
        state = first_state + tl.arange(0, STATES)
        totals = _totals(pairs, plan, task, n, b, first_state, n_states, labels, local, SIZES)
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
        totals = _totals(pairs, plan, task, n, b, first_state, n_states, labels, local, SIZES)
        derivative = weight * (tl.exp(totals - log_partition) - (state == true_state).to(dtype))
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            own_stride = tl.load(task.stride + i)
            own = (state // own_stride) % N_LABELS
            if tl.load(labels + i) >= 0:
                each = tl.where(own[:, None] == k, derivative[:, None], 0.0)  # (STATES, LABELS)
                at = task.residual + (n * n_sites + i) * N_LABELS + k
                _add(at, tl.sum(each, axis=0, keep_dims=True), k < N_LABELS)
                slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
                while slot < last:
                    counts, near_stride = inner_edge(pairs, task.block_of, task.stride, labels, b, own_stride, slot)
                    if counts:
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
