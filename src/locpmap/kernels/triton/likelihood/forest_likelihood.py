"""Likelihoods of chains and other forests: sums from the leaves to the roots, then marginals from the roots down.

Items are the blocks of an image.  The upward pass adds messages to ``local``: a site's belief is its scores with all
sites below summed out.  The downward pass recomputes the table of a site given its parent from these beliefs.
"""

import triton
import triton.language as tl

from locpmap.kernels.likelihood import Scores
from locpmap.kernels.triton.block_launches import PlacedPlan, Range, Task
from locpmap.kernels.triton.local_scores import Pairs, pair_scores, sizes_of


def solve_forests(
    scores: Scores, pairs: Pairs, plan: PlacedPlan, task: Task, images: Range, blocks: Range, longest: int
) -> None:
    """Write losses, residuals and pair derivatives of blocks ``order[blocks]``, of at most ``longest`` sites."""
    sizes = sizes_of(scores, 512, 16)
    grid = ((images[1] - images[0]) * triton.cdiv(blocks[1] - blocks[0], sizes.items),)
    _solve_forests[grid](pairs, plan, task, images[0], *blocks, longest, scores.unary.shape[1], sizes)


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


@triton.jit(do_not_specialize=["lo", "first", "last", "longest"])
def _solve_forests(pairs, plan, task, lo, first, last, longest, n_sites, SIZES: tl.constexpr):
    N_LABELS: tl.constexpr = SIZES.n_labels
    LABELS: tl.constexpr = SIZES.labels
    ITEMS: tl.constexpr = SIZES.items
    dtype: tl.constexpr = task.local.dtype.element_ty
    k = tl.arange(0, LABELS)[None, :]
    per_image = tl.cdiv(last - first, ITEMS)
    n = lo + (tl.program_id(0) // per_image).to(tl.int64)
    item = first + (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS)
    real = item < last
    b = tl.load(plan.order + item, mask=real, other=0)
    weight = tl.load(task.weights + n * task.weight_image).to(dtype)
    known_labels = task.labels + n * n_sites
    local = task.local + (n - lo) * n_sites * N_LABELS
    marginals = task.residual + n * n_sites * N_LABELS + k
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
            p_above = tl.load(task.residual + (n * n_sites + above) * N_LABELS + a, mask=bound, other=0.0)
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
        tl.store(marginals + i[:, None] * N_LABELS, node, mask=(true >= 0)[:, None] & (k < N_LABELS))
        tl.debug_barrier()  # other threads may read what these stored
        position += 1
    position = 0
    while position < longest:
        t = begin + position
        i = tl.load(plan.site + t, mask=t < stop, other=0).to(tl.int64)
        true = tl.load(known_labels + i, mask=t < stop, other=-1).to(tl.int32)
        held = (true >= 0)[:, None] & (k < N_LABELS)
        node = tl.load(marginals + i[:, None] * N_LABELS, mask=held, other=0.0)
        tl.debug_barrier()
        residual = weight * (node - (k == true[:, None]).to(dtype))
        tl.store(marginals + i[:, None] * N_LABELS, residual, mask=held)
        position += 1
    tl.store(task.value + n * task.n_blocks + b, weight * value, mask=real)
