"""The best labels of small blocks by enumeration of all joint labellings, four per Philox call.

A labelling's score is the sum of entries of three precomputed tables: scores inside the block, equal in all samples,
and pairwise scores of the block's first and of its last sites with the labels around it.  Most labellings cannot win
with any noise, or with a rough bound of their noise; only the others are computed exactly.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels import perturbation as schemes
from locpmap.kernels.model import Array, Model
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.block_launches import PlacedPlan, Run, State
from locpmap.kernels.triton.local_scores import Sizes, improves, joint_scores, pair_scores, pairs_of, sizes_of
from locpmap.kernels.triton.philox import PLAIN, pick, uniform, words

GROUPS = 8  # groups of four labellings that a program compares together
TOGETHER = 256  # labellings whose scores inside the block are computed together
PER_PROCESSOR = 8  # programs per multiprocessor: few enough for their tables to fit the L1 cache
SAMPLES = 32

# Uniforms are at most 1 - 2^-24, so Gumbel values do not exceed this.
MOST = tl.constexpr(24 * math.log(2))
LOG_2 = tl.constexpr(math.log(2))
SLACK = tl.constexpr(1e-3)  # relative tolerance of the rough bounds


class Joint(NamedTuple):
    """The compile-time constants of a launch."""

    sizes: Sizes
    noise: bool
    most_states: int
    together: int
    low: int  # number of labellings of a block's last sites
    high: int  # number of labellings of its first sites
    groups: int
    samples: int


class Noise(NamedTuple):
    """Key, counters and scale of the noise, as tensors: Triton would recompile for integers and round floats."""

    site_id: Array  # (S,)
    key: Array  # (4,) int64: both halves of the key, the first image, the first sample
    amount: Array  # (1,) with the unaries' dtype


def joint_noise(model: Model, climb: Climb, span: Span) -> Noise:
    """Return the noise of a span of samples."""
    _, amount, k0, k1 = climb.perturbation
    key = torch.tensor([k0, k1, climb.first_image + span.lo, span.first], dtype=torch.int64)
    scale = torch.full((1,), amount, dtype=model.unary.dtype, device=model.unary.device)
    return Noise(model.site_id, key.to(scale.device, non_blocking=True), scale)


def improve_joint(
    model: Model, plan: PlacedPlan, run: Run, climb: Climb, noise: Noise, lo: int, state: State, sweep: int, turn: int
) -> None:
    """Set the best labels of a run's blocks, except those without changes around them; record sweep and turn."""
    n_samples, device = state.n_samples, state.labels.device
    n_blocks, n_labels = run.stop - run.begin, model.unary.shape[2]
    samples = min(triton.next_power_of_2(n_samples), SAMPLES)
    n_tiles = len(state.labels) * n_blocks * triton.cdiv(n_samples, samples)
    n_programs = n_tiles
    if device.type == "cuda":
        n_programs = min(n_tiles, PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count)
    low = n_labels ** (run.longest // 2)
    high = n_labels ** (run.longest - run.longest // 2)
    most_states = triton.cdiv(low * high, TOGETHER) * TOGETHER
    scratch = torch.empty((n_programs, most_states + (low + high) * samples), dtype=model.unary.dtype, device=device)
    sizes, is_noisy = sizes_of(model), climb.perturbation.scheme == schemes.PLAIN
    joint = Joint(sizes, is_noisy, most_states, TOGETHER, low, high, GROUPS, samples)
    arrays = (plan, pairs_of(model), model.unary, noise, state, scratch)
    numbers = (sweep, turn, lo, run.begin, n_blocks, n_tiles)
    _improve_joint[(n_programs,)](*arrays, *numbers, joint, num_warps=1)


@triton.jit(do_not_specialize=["sweep", "turn", "lo", "first_block", "n_blocks", "n_tiles"])
def _improve_joint(
    plan, pairs, unary, noise, state, scratch, sweep, turn, lo, first_block, n_blocks, n_tiles, JOINT: tl.constexpr
):
    SIZES: tl.constexpr = JOINT.sizes
    SAMPLES: tl.constexpr = JOINT.samples
    LOW: tl.constexpr = JOINT.low
    HIGH: tl.constexpr = JOINT.high
    n_sites, n_samples = state.n_sites, state.n_samples
    n_chunks = (n_samples + SAMPLES - 1) // SAMPLES
    inside = scratch + tl.program_id(0).to(tl.int64) * (JOINT.most_states + (LOW + HIGH) * SAMPLES)
    high, low = inside + JOINT.most_states, inside + JOINT.most_states + HIGH * SAMPLES
    k0, k1, amount = tl.load(noise.key), tl.load(noise.key + 1), tl.load(noise.amount)
    first_image, first_sample = tl.load(noise.key + 2), tl.load(noise.key + 3)
    lane = tl.arange(0, SAMPLES)[None, :]
    tile = tl.program_id(0)
    while tile < n_tiles:
        item, r = tile // n_chunks, (tile % n_chunks) * SAMPLES + lane
        b = tl.load(plan.order + first_block + item % n_blocks)
        n = (item // n_blocks).to(tl.int64)
        y = state.labels + n * n_sites * n_samples + r
        stamp = state.stamps + n * state.n_blocks * n_samples + r
        # A sample without changes in the last sweep has converged.
        going = tl.load(state.changed + n * n_samples + r, mask=r < n_samples, other=-1) >= sweep - 1
        going = going & _is_open(plan, pairs, b, stamp, r < n_samples, turn - state.n_runs, n_sites, n_samples, SAMPLES)
        if tl.max(going.to(tl.int32)) > 0:
            image = lo + n
            own = unary + image * n_sites * SIZES.n_labels
            begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
            family = tl.load(plan.family + b).to(tl.int64)
            block_of, strides = plan.block_of + family * n_sites, plan.stride + family * n_sites
            lead = tl.load(plan.site + begin).to(tl.int64)
            n_states = tl.load(strides + lead) * SIZES.n_labels
            first = tl.zeros([], tl.int32)
            while first < n_states:
                labelling = first + tl.arange(0, JOINT.together)
                total = joint_scores(plan, pairs, own, block_of, strides, None, image, b, labelling, SIZES)
                tl.store(inside + labelling, tl.where(labelling < n_states, total, float("-inf")))
                first += JOINT.together
            args = (plan, pairs, state, image, b, y, r < n_samples)
            _score_around(*args, high, LOW, LOW * HIGH, HIGH, SIZES)
            _score_around(*args, low, 1, LOW, LOW, SIZES)
            tl.debug_barrier()  # other threads stored the tables
            key = (k0, k1, first_image + n, first_sample + r, tl.load(noise.site_id + lead))
            current = tl.zeros([1, SAMPLES], tl.int32)
            t = begin
            while t < stop:
                i = tl.load(plan.site + t).to(tl.int64)
                current += tl.load(y + i * n_samples, mask=going, other=0).to(tl.int32) * tl.load(strides + i)
                t += 1
            held = tl.load(inside + current) + tl.load(high + current // LOW * SAMPLES + lane)
            held += tl.load(low + current % LOW * SAMPLES + lane)
            if JOINT.noise:
                w0, w1, w2, w3 = words(k0, k1, PLAIN, key[2], key[3], key[4], current // 4)
                held += amount * _gumbel(pick(w0, w1, w2, w3, current % 4), held.dtype)
            best, winner = held, current
            first = tl.zeros([], tl.int32)
            while first < n_states:
                tables = (inside, high, low)
                best, winner = _take_best(best, winner, first, n_states, key, amount, going, tables, JOINT)
                first += 4 * JOINT.groups
            changes = going & improves(best, held)
            tl.debug_barrier()  # other threads may still read the labels
            t = begin
            while t < stop:
                i = tl.load(plan.site + t).to(tl.int64)
                label = (winner // tl.load(strides + i)) % SIZES.n_labels
                tl.store(y + i * n_samples, label.to(state.labels.dtype.element_ty), mask=changes)
                t += 1
            tl.store(state.changed + n * n_samples + r, tl.zeros([1, SAMPLES], tl.int32) + sweep, mask=changes)
            tl.store(stamp + b.to(tl.int64) * n_samples, tl.zeros([1, SAMPLES], tl.int32) + turn, mask=changes)
        tile += tl.num_programs(0)


@triton.jit
def _is_open(plan, pairs, b, stamp, real, before, n_sites, n_samples, SAMPLES: tl.constexpr):
    """Return in which samples an adjacent block changed after turn ``before``; all samples in the first sweep."""
    block_of = plan.block_of + tl.load(plan.family + b).to(tl.int64) * n_sites
    latest = tl.where(before <= 0, before + 1, tl.zeros([1, SAMPLES], tl.int32))
    t, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
    while t < stop:
        i = tl.load(plan.site + t).to(tl.int64)
        slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
        while slot < last:
            other = tl.load(block_of + tl.load(pairs.neighbour + slot)).to(tl.int64)
            latest = tl.maximum(latest, tl.load(stamp + other * n_samples, mask=real & (other != b), other=0))
            slot += 1
        t += 1
    return latest > before


@triton.jit
def _score_around(plan, pairs, state, image, b, y, real, table, least, beyond, ROWS: tl.constexpr, SIZES: tl.constexpr):
    """Fill ``table`` (ROWS, SAMPLES) with the scores of some sites of a block, given the labels around the block.

    These sites have strides (`PlacedPlan.stride`) from ``least`` to below ``beyond``.  The row of a labelling is its
    index divided by ``least``.
    """
    SAMPLES: tl.constexpr = real.shape[1]
    family = tl.load(plan.family + b).to(tl.int64)
    block_of, strides = plan.block_of + family * state.n_sites, plan.stride + family * state.n_sites
    begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
    first = tl.zeros([], tl.int32)
    while first < ROWS:
        row = first + tl.arange(0, 16)[:, None]
        total = tl.zeros([16, SAMPLES], table.dtype.element_ty)
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            stride = tl.load(strides + i)
            if (stride >= least) & (stride < beyond):
                own = (row // (stride // least)) % SIZES.n_labels
                slot, last = tl.load(pairs.indptr + i), tl.load(pairs.indptr + i + 1)
                while slot < last:
                    near = tl.load(pairs.neighbour + slot).to(tl.int64)
                    if tl.load(block_of + near) != b:
                        label = tl.load(y + near * state.n_samples, mask=real, other=0).to(tl.int32)
                        total += pair_scores(pairs, image, slot, own, label, SIZES)
                    slot += 1
            t += 1
        tl.store(table + row * SAMPLES + tl.arange(0, SAMPLES)[None, :], total, mask=row < ROWS)
        first += 16


@triton.jit
def _take_best(best, winner, first, n_states, key, amount, going, tables, JOINT: tl.constexpr):
    """Update the best score and its labelling, (1, SAMPLES), with 4 · GROUPS labellings from number ``first`` on."""
    LOW: tl.constexpr = JOINT.low
    GROUPS: tl.constexpr = JOINT.groups
    SAMPLES: tl.constexpr = JOINT.samples
    inside, high, low = tables
    dtype: tl.constexpr = best.dtype
    lane = tl.arange(0, SAMPLES)[None, :]
    group = first // 4 + tl.arange(0, GROUPS)[:, None]
    scores = ()
    peak = tl.full([GROUPS, SAMPLES], float("-inf"), dtype)
    for which in tl.static_range(4):
        state = 4 * group + which
        if LOW % (4 * GROUPS) == 0:
            score = tl.load(high + first // LOW * SAMPLES + lane)
        else:
            score = tl.load(high + tl.minimum(state // LOW, JOINT.high - 1) * SAMPLES + lane)
        score += tl.load(inside + state) + tl.load(low + (state % LOW) * SAMPLES + lane)
        scores += (score,)
        peak = tl.maximum(peak, score)
    reach = tl.max(peak, axis=0, keep_dims=True)
    if JOINT.noise:
        reach += amount * MOST
    if tl.max((going & (reach > best)).to(tl.int32)) > 0:
        close, drawn = going, (group, group, group, group)
        if JOINT.noise:
            drawn = words(key[0], key[1], PLAIN, key[2], key[3], key[4], group)
            # -log(-log u) <= -log(1 - u); a float's bits, read as an integer, approximate its log2 from below.
            rough = tl.full([GROUPS, SAMPLES], float("-inf"), tl.float32)
            unit = amount.to(tl.float32) * LOG_2
            for which in tl.static_range(4):
                rest = (16777215 - 2 * (drawn[which] >> 9).to(tl.int32)).to(tl.float32)  # 2^24 (1 - u)
                log_rest = rest.to(tl.int32, bitcast=True).to(tl.float32) * (1.0 / 8388608.0)  # log2 + 127
                rough = tl.maximum(rough, scores[which].to(tl.float32) + unit * (24 + 127 - log_rest))
            bound = tl.max(rough, axis=0, keep_dims=True)
            least = best.to(tl.float32)
            close = going & (bound > least - SLACK * (1 + tl.abs(least)))
        if tl.max(close.to(tl.int32)) > 0:
            totals = ()
            top = tl.full([GROUPS, SAMPLES], float("-inf"), dtype)
            for which in tl.static_range(4):
                total = scores[which]
                if JOINT.noise:
                    total += amount * _gumbel(drawn[which], dtype)
                totals += (total,)
                top = tl.maximum(top, total)
            summit = tl.max(top, axis=0, keep_dims=True)
            first_state = tl.zeros([GROUPS, SAMPLES], tl.int32) + n_states
            for which in tl.static_range(4):
                there = totals[which] == summit
                first_state = tl.where(there, tl.minimum(first_state, 4 * group + which), first_state)
            winner = tl.where(summit > best, tl.min(first_state, axis=0, keep_dims=True), winner)
            best = tl.maximum(best, summit)
    return best, winner


@triton.jit
def _gumbel(word, dtype: tl.constexpr):
    return -tl.log(-tl.log(uniform(word).to(dtype)))
