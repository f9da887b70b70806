"""The best labels of chains and other forests by dynamic programming: from the leaves up, then back by stored choices.

Messages are relative to their maximum, so single precision suffices for any number of sites.  The regret of a site is
the loss of its current label against its best one, given its parent's current label and the best labels below.  The
regrets add up to the best score minus the current score.  A block changes where some regret exceeds rounding.
"""

import triton
import triton.language as tl

from locpmap.kernels.triton.local_scores import improves, pair_scores


@triton.jit(do_not_specialize=["sweep", "turn", "lo", "first_block", "n_blocks"])
def improve_forests(arrays, sweep, turn, lo, first_block, n_blocks, SIZES: tl.constexpr, SAMPLES: tl.constexpr):
    """Set the best labels of a run's blocks; record sweep and turn.  ``arrays`` as in `climb_blocks`."""
    plan, pairs, noisy_ptr, choice_ptr, message_ptr, state = arrays
    N_LABELS: tl.constexpr = SIZES.n_labels
    LABELS: tl.constexpr = SIZES.labels
    n_sites, n_samples = state.n_sites, state.n_samples
    n_chunks = tl.cdiv(n_samples, SAMPLES)
    item = tl.program_id(0) // n_chunks
    r = (tl.program_id(0) % n_chunks) * SAMPLES + tl.arange(0, SAMPLES)[None, :]
    b = tl.load(plan.order + first_block + item % n_blocks)
    n = (item // n_blocks).to(tl.int64)
    real = r < n_samples
    changed_ptr = state.changed + n * n_samples + r
    labels_ptr = state.labels + n * n_sites * n_samples + r
    # A sample without changes in the last sweep has converged.
    if tl.max(tl.load(changed_ptr, mask=real, other=-1)) >= sweep - 1:
        dtype: tl.constexpr = noisy_ptr.dtype.element_ty
        k = tl.arange(0, LABELS)[:, None]
        there = real & (k < N_LABELS)
        first = n * n_sites * N_LABELS * n_samples + r
        block_of = plan.block_of + tl.load(plan.family + b).to(tl.int64) * n_sites
        begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
        better = tl.zeros([1, SAMPLES], tl.int32)
        possible = tl.full([1, SAMPLES], 1, tl.int32)
        t = stop - 1
        while t >= begin:
            i = tl.load(plan.site + t).to(tl.int64)
            upward = tl.load(plan.parent_slot + t).to(tl.int64)
            site_above = tl.load(plan.site + begin + tl.maximum(tl.load(plan.parent + t), 0)).to(tl.int64)
            row = first + (i * N_LABELS + k) * n_samples
            belief = tl.load(noisy_ptr + row, mask=there, other=float("-inf"))
            slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
            while slot < last:
                near = tl.load(pairs.neighbour + slot).to(tl.int64)
                if tl.load(block_of + near) != b:
                    label = tl.load(labels_ptr + near * n_samples, mask=real, other=0).to(tl.int32)
                    belief += pair_scores(pairs, lo + n, slot, k, label, SIZES)
                else:
                    below = message_ptr + first + (near * N_LABELS + k) * n_samples
                    belief += tl.load(below, mask=there & (slot != upward), other=0.0)
                slot += 1
            # The message to the parent; a root has no edge, which scores 0.
            top, crest = tl.max(belief, axis=0, return_indices=True, keep_dims=True)
            if SIZES.potts:
                weight = pair_scores(pairs, lo + n, upward, 0, 0, SIZES)
                # Besides the parent's label only the best one can win, or the second best if both are the same label.
                rest = tl.where(k == crest, float("-inf"), belief)
                second, runner = tl.max(rest, axis=0, return_indices=True, keep_dims=True)
                stay, leave = belief + weight, tl.where(k == crest, second, top)
                other = tl.where(k == crest, runner, crest)
                sent = tl.maximum(stay, leave)
                picked = tl.where(stay > leave, k, tl.where(stay == leave, tl.minimum(k, other), other))
            else:
                sent = tl.full([LABELS, SAMPLES], float("-inf"), dtype)
                picked = tl.zeros([LABELS, SAMPLES], tl.int32)
                for a in range(N_LABELS):
                    trial = tl.max(tl.where(k == a, belief, float("-inf")), axis=0, keep_dims=True)
                    trial += pair_scores(pairs, lo + n, upward, a, k, SIZES)
                    picked = tl.where(trial > sent, a, picked)
                    sent = tl.maximum(sent, trial)
            tl.store(choice_ptr + row, picked.to(choice_ptr.dtype.element_ty), mask=there)
            here = tl.load(labels_ptr + i * n_samples, mask=real, other=0).to(tl.int32)
            above = tl.load(labels_ptr + site_above * n_samples, mask=real, other=0).to(tl.int32)
            best = tl.max(tl.where(k == above, sent, float("-inf")), axis=0, keep_dims=True)
            now = tl.max(tl.where(k == here, belief, float("-inf")), axis=0, keep_dims=True)
            now += pair_scores(pairs, lo + n, upward, here, above, SIZES)
            better = better | improves(best, now).to(tl.int32)
            possible = possible & ((upward >= 0) | (top > float("-inf"))).to(tl.int32)
            peak = tl.max(sent, axis=0, keep_dims=True)
            tl.store(message_ptr + row, sent - tl.where(peak > float("-inf"), peak, 0.0), mask=there)
            tl.debug_barrier()  # other threads may read what these stored
            t -= 1
        changes = real & ((better & possible) > 0)
        if tl.max(changes.to(tl.int32)) > 0:
            tl.debug_barrier()  # other threads stored the choices
            t = begin
            while t < stop:
                i, parent = tl.load(plan.site + t).to(tl.int64), tl.load(plan.parent + t)
                site_above = tl.load(plan.site + begin + tl.maximum(parent, 0)).to(tl.int64)
                label = tl.load(labels_ptr + site_above * n_samples, mask=changes, other=0).to(tl.int32)
                cell = i * N_LABELS + tl.where(parent >= 0, label, 0)
                label = tl.load(choice_ptr + first + cell * n_samples, mask=changes, other=0).to(tl.int32)
                tl.store(labels_ptr + i * n_samples, label.to(labels_ptr.dtype.element_ty), mask=changes)
                tl.debug_barrier()
                t += 1
            tl.store(changed_ptr, tl.zeros([1, SAMPLES], tl.int32) + sweep, mask=changes)
            stamp = state.stamps + (n * state.n_blocks + b) * n_samples + r
            tl.store(stamp, tl.zeros([1, SAMPLES], tl.int32) + turn, mask=changes)
