"""The best labels of small blocks by enumeration of all joint labellings.

Noise is drawn only for labellings that win with the largest possible noise.
"""

import math

import triton
import triton.language as tl

from locpmap.kernels.triton.local_scores import add_joint_scores, improves
from locpmap.kernels.triton.philox import PLAIN, Draw, pick, uniform, words

STATES = tl.constexpr(32)  # labellings that a program compares together

# Uniforms are at most 1 - 2^-24, so Gumbel values do not exceed this.
MOST = tl.constexpr(24 * math.log(2))


@triton.jit(do_not_specialize=[*Draw._fields, "sweep", "turn", "lo", "first_block", "n_blocks"])
def improve_joint(
    arrays,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    first_sample,
    sweep,
    turn,
    lo,
    first_block,
    n_blocks,
    SIZES: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    """Set the best labels of a run's blocks, except those without changes around them; record sweep and turn.

    ``arrays`` as in `climb_blocks`.
    """
    plan, pairs, unary, site_id, amount, state = arrays
    n_sites, n_samples = state.n_sites, state.n_samples
    n_chunks = tl.cdiv(n_samples, SAMPLES)
    item = tl.program_id(0) // n_chunks
    r = (tl.program_id(0) % n_chunks) * SAMPLES + tl.arange(0, SAMPLES)[None, :]
    real, r = r < n_samples, tl.minimum(r, n_samples - 1)
    b = tl.load(plan.order + first_block + item % n_blocks)
    n = (item // n_blocks).to(tl.int64)
    y = state.labels + n * n_sites * n_samples + r
    stamp = state.stamps + n * state.n_blocks * n_samples + r
    # A sample without changes in the last sweep has converged.
    going = real & (tl.load(state.changed + n * n_samples + r) >= sweep - 1)
    going = going & _is_open(plan, pairs, b, stamp, turn - state.n_runs, n_sites, n_samples)
    if tl.max(going.to(tl.int32)) > 0:
        dtype: tl.constexpr = unary.dtype.element_ty
        strides = plan.stride + tl.load(plan.family + b).to(tl.int64) * n_sites
        begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
        lead = tl.load(plan.site + begin).to(tl.int64)
        n_states = tl.load(strides + lead) * SIZES.n_labels
        key = (k0, k1, PLAIN, first_image + n, first_sample + r, tl.load(site_id + lead))
        given = (plan, pairs, unary + (lo + n) * n_sites * SIZES.n_labels, y, n_samples, lo + n, b)
        scale = tl.load(amount)
        current = tl.zeros([1, SAMPLES], tl.int32)
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            current += tl.load(y + i * n_samples).to(tl.int32) * tl.load(strides + i)
            t += 1
        held = add_joint_scores(tl.zeros([1, SAMPLES], dtype), *given, current, n_sites, SIZES)
        held += scale * _gumbel(key, current, dtype)
        best, winner = held, current
        first = tl.zeros([], tl.int32)
        while first < n_states:
            labelling = first + tl.arange(0, STATES)[:, None]
            scores = tl.where(labelling < n_states, 0.0, float("-inf")) + tl.zeros([STATES, SAMPLES], dtype)
            scores = add_joint_scores(scores, *given, labelling, n_sites, SIZES)
            reach = tl.max(scores, axis=0, keep_dims=True) + scale * MOST
            if tl.max((going & (reach > best)).to(tl.int32)) > 0:
                scores += scale * _gumbel(key, labelling, dtype)
            top = tl.max(scores, axis=0, keep_dims=True)
            highest = tl.min(tl.where(scores == top, labelling, n_states), axis=0, keep_dims=True)
            winner = tl.where(top > best, highest, winner)
            best = tl.maximum(best, top)
            first += STATES
        changes = going & improves(best, held)
        tl.debug_barrier()  # other threads may still read the labels
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            label = (winner // tl.load(strides + i)) % SIZES.n_labels
            tl.store(y + i * n_samples, label.to(state.labels.dtype.element_ty), mask=changes)
            t += 1
        tl.store(state.changed + n * n_samples + r, tl.zeros_like(r) + sweep, mask=changes)
        tl.store(stamp + b.to(tl.int64) * n_samples, tl.zeros_like(r) + turn, mask=changes)


@triton.jit
def _is_open(plan, pairs, b, stamp, before, n_sites, n_samples):
    """Return in which samples an adjacent block changed after turn ``before``; all samples in the first sweep."""
    block_of = plan.block_of + tl.load(plan.family + b).to(tl.int64) * n_sites
    latest = tl.where(before <= 0, before + 1, tl.zeros(stamp.shape, tl.int32))
    t, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
    while t < stop:
        i = tl.load(plan.site + t).to(tl.int64)
        slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
        while slot < last:
            other = tl.load(block_of + tl.load(pairs.neighbour + slot)).to(tl.int64)
            latest = tl.maximum(latest, tl.load(stamp + other * n_samples, mask=other != b, other=0))
            slot += 1
        t += 1
    return latest > before


@triton.jit
def _gumbel(key, labelling, dtype: tl.constexpr):
    """Return the noise of joint labellings."""
    w0, w1, w2, w3 = words(*key, labelling // 4)
    return -tl.log(-tl.log(uniform(pick(w0, w1, w2, w3, labelling % 4)).to(dtype)))
