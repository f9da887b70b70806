"""The best labels of small blocks: all joint labellings in turn, four to a call of Philox."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels import perturbation as schemes
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.triton.block_launches import PlacedPlan, Run
from locpmap.kernels.triton.local_scores import pairs_of
from locpmap.kernels.triton.pair_scores import improves, pair_scores
from locpmap.kernels.triton.philox import PLAIN, pick, uniform, words


def improve_joint(
    model: Model,
    plan: PlacedPlan,
    run: Run,
    perturbation: Perturbation,
    first_image: int,
    first_sample: int,
    lo: int,
    labels: torch.Tensor,
    changed: torch.Tensor,
    sweep: int,
    rounding: float,
) -> None:
    """Give the blocks of a run their best labels, and note the sweep in ``changed`` (n, R) where that changed any.

    Images are numbers ``lo ..`` of the model.
    """
    n_images, n_sites, n_samples = labels.shape
    n_blocks, n_labels = run.stop - run.begin, model.unary.shape[2]
    samples = min(triton.next_power_of_2(n_samples), 32)
    groups = min(triton.next_power_of_2(triton.cdiv(n_labels**run.longest, 4)), 512 // samples)
    # A float that is passed as such loses half of its digits.
    amount = torch.full((1,), perturbation.amount, dtype=model.unary.dtype, device=labels.device)
    _improve_joint[(n_images * n_blocks * triton.cdiv(n_samples, samples),)](
        *(plan, pairs_of(model), model.unary, model.site_id, labels, changed, amount, perturbation.k0, perturbation.k1),
        *(first_image + lo, first_sample, sweep, lo, run.begin, n_blocks, n_sites, n_samples),
        N_FEATURES=model.features.shape[2],
        N_LABELS=n_labels,
        POTTS=bool(model.potts),
        NOISE=perturbation.scheme == schemes.PLAIN,
        ROUNDING=rounding,
        GROUPS=groups,
        SAMPLES=samples,
        num_warps=4 if groups * samples > 64 else 1,
    )


@triton.jit(do_not_specialize=["first_image", "first_sample", "sweep", "lo", "first_block", "n_blocks"])
def _improve_joint(
    plan,
    pairs,
    unary_ptr,
    site_id_ptr,
    labels_ptr,
    changed_ptr,
    amount_ptr,
    k0,
    k1,
    first_image,
    first_sample,
    sweep,
    lo,
    first_block,
    n_blocks,
    n_sites,
    n_samples,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    POTTS: tl.constexpr,
    NOISE: tl.constexpr,
    ROUNDING: tl.constexpr,
    GROUPS: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    n_chunks = tl.cdiv(n_samples, SAMPLES)
    item = tl.program_id(0) // n_chunks
    r = (tl.program_id(0) % n_chunks) * SAMPLES + tl.arange(0, SAMPLES)[None, None, :]
    b = tl.load(plan.order + first_block + item % n_blocks)
    n = (item // n_blocks).to(tl.int64)
    real = r < n_samples
    changed_ptr += n * n_samples + r
    labels_ptr += n * n_sites * n_samples + r
    unary_ptr += (lo + n) * n_sites * N_LABELS
    # A sample that no block changed in the last sweep has ended.
    if tl.max(tl.load(changed_ptr, mask=real, other=-1)) >= sweep - 1:
        dtype: tl.constexpr = unary_ptr.dtype.element_ty
        family = tl.load(plan.family + b).to(tl.int64)
        home, worths = plan.block_of + family * n_sites, plan.worth + family * n_sites
        begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
        lead = tl.load(plan.site + begin).to(tl.int64)
        n_states = tl.load(worths + lead) * N_LABELS
        amount, key_site = tl.load(amount_ptr), tl.load(site_id_ptr + lead)
        current = tl.zeros([1, 1, SAMPLES], tl.int32)
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            here = tl.load(labels_ptr + i * n_samples, mask=real, other=0).to(tl.int32)
            current += here * tl.load(worths + i)
            t += 1
        top = tl.full([GROUPS, 4, SAMPLES], float("-inf"), dtype)
        best = tl.zeros([GROUPS, 4, SAMPLES], tl.int32)
        held = tl.full([1, 1, SAMPLES], float("-inf"), dtype)
        which = tl.arange(0, 4)[None, :, None]  # of the four states of a group, whose noise is one call of Philox
        first_state = tl.zeros([], tl.int32)
        while first_state < n_states:
            group = first_state // 4 + tl.arange(0, GROUPS)[:, None, None]
            state = 4 * group + which
            known = real & (state < n_states)
            total = tl.zeros([GROUPS, 4, SAMPLES], dtype)
            t = begin
            while t < stop:
                i = tl.load(plan.site + t).to(tl.int64)
                worth = tl.load(worths + i)
                own = (state // worth) % N_LABELS
                total += tl.load(unary_ptr + i * N_LABELS + own)
                slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
                while slot < last:
                    near = tl.load(pairs.neighbour + slot).to(tl.int64)
                    inside, near_worth = tl.load(home + near) == b, tl.load(worths + near)
                    # An edge inside the block counts at its later site.
                    if (near_worth > worth) | (inside == 0):
                        label = tl.load(labels_ptr + near * n_samples, mask=real, other=0).to(tl.int32)
                        other = tl.where(inside, (state // near_worth) % N_LABELS, label)
                        total += pair_scores(pairs, lo + n, slot, own, other, known, N_FEATURES, N_LABELS, POTTS)
                    slot += 1
                t += 1
            if NOISE:
                sample = (first_sample + r).to(tl.int64)
                w0, w1, w2, w3 = words(k0, k1, PLAIN, first_image + n, sample, key_site, group)
                total -= amount * tl.log(-tl.log(uniform(pick(w0, w1, w2, w3, which)).to(dtype)))
            total = tl.where(known, total, float("-inf"))
            best = tl.where(total > top, state, best)
            top = tl.maximum(top, total)
            mine = tl.where(state == current, total, float("-inf"))
            held = tl.maximum(held, tl.max(tl.max(mine, axis=0, keep_dims=True), axis=1, keep_dims=True))
            first_state += 4 * GROUPS
        peak = tl.max(tl.max(top, axis=0, keep_dims=True), axis=1, keep_dims=True)
        winner = tl.where(top == peak, best, n_states)
        winner = tl.min(tl.min(winner, axis=0, keep_dims=True), axis=1, keep_dims=True)
        changes = real & improves(peak, held, ROUNDING)
        tl.debug_barrier()  # other threads may still read the labels
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            label = (winner // tl.load(worths + i)) % N_LABELS
            tl.store(labels_ptr + i * n_samples, label.to(labels_ptr.dtype.element_ty), mask=changes)
            t += 1
        tl.store(changed_ptr, tl.zeros([1, 1, SAMPLES], tl.int32) + sweep, mask=changes)
