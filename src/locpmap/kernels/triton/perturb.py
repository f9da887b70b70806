"""The initial state of climbs: perturbed unaries and starting labels; see `locpmap.kernels.reference.noise`.

Scores have the layout (n, S, L, R) and labels (n, S, R), so adjacent lanes handle adjacent samples of a site.  Scores
can also be stored in chunks of T samples: a kernel that processes T samples together then reads contiguous memory.
"""

import torch
import triton
import triton.language as tl

from locpmap.arrays import of_images
from locpmap.kernels import perturbation as schemes
from locpmap.kernels.model import Array
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.lazy_noise import (
    byte_of,
    fast_exp,
    fast_log,
    fine_wait,
    later_clock,
    leading_bytes,
    logistic,
    room_of,
    start_bits,
)
from locpmap.kernels.triton.philox import DROP, LAZY_SITE, PLAIN, START, Draw, pick, uniform, words

BLOCK = tl.constexpr(256)  # samples of sites per program

_PLAIN, _LOGISTIC, _DROP, _LAZY = map(tl.constexpr, (schemes.PLAIN, schemes.LOGISTIC, schemes.DROP, schemes.LAZY))


def perturb(
    unary: Array, site_id: Array, perturbation: Perturbation, first_image: int, span: Span, together: int = 0
) -> Array:
    """Return the perturbed unaries of a span, (n, S, L, R) with the dtype of ``unary`` (n, S, L).

    The noise keys number the model's images from ``first_image``.  With ``together``, samples are stored in chunks of
    that size: the result (n, S, L, C, T) is a view of memory (n, C, S, L, T), and the last chunk may be padded.
    """
    n_images, n_sites, n_labels = unary.shape
    scheme, amount, *key = perturbation
    n_samples = span.n_samples
    size = together or n_samples
    shape = (n_images, -(-n_samples // size), n_sites, n_labels, size)
    memory = torch.empty(shape, dtype=unary.dtype, device=unary.device)
    grid = (n_images * triton.cdiv(n_sites * n_samples, BLOCK.value),)
    arrays, draw = (unary, memory, site_id, n_sites, n_samples, size), (*key, first_image + span.lo, span.first)
    _perturb[grid](arrays, *draw, amount, n_labels, scheme, room_of(n_labels))
    return memory.permute(0, 2, 3, 1, 4) if together else memory[:, 0]


def begin(unary: Array, scores: Array, site_id: Array, climb: Climb, span: Span, labels: Array) -> None:
    """Fill ``labels`` (n, S, R) with the starting labels of climbs on the ``scores`` of `perturb`."""
    (n_images, n_sites, n_samples), n_labels = labels.shape, unary.shape[2]
    if climb.start == schemes.PERTURBED:
        labels.copy_(scores.argmax(dim=2).flatten(2)[:, :, :n_samples])
    elif climb.start == schemes.GIVEN:
        labels.copy_(of_images(climb.given, span.lo, span.hi)[:, :, None].expand(labels.shape))
    else:
        grid = (n_images * triton.cdiv(n_sites * n_samples, BLOCK.value),)
        scheme, _, *key = climb.perturbation
        arrays, draw = (unary, labels, site_id, n_sites, n_samples), (*key, climb.first_image + span.lo, span.first)
        _start[grid](arrays, *draw, n_labels, scheme)


@triton.jit
def nth_allowed(scores_ptr, nth, inside, N_LABELS: tl.constexpr):
    """Return the nth label that is not forbidden; ``nth`` itself where fewer labels are allowed."""
    label = nth
    seen = tl.zeros_like(nth)
    for k in range(N_LABELS):
        free = tl.load(scores_ptr + k, mask=inside, other=0.0) > float("-inf")
        label = tl.where(free & (seen == nth), k, label)
        seen += free.to(tl.int32)
    return label


@triton.jit
def items(n_sites, n_samples, BLOCK: tl.constexpr):
    """Return image, site and sample of every lane, and which lanes exist; samples vary fastest."""
    count = tl.cast(n_sites, tl.int64) * n_samples
    per_image = tl.cdiv(count, BLOCK)
    first = tl.program_id(0) % per_image * BLOCK
    # Item numbers may exceed 32 bits; offsets from the block's first site do not.
    lane = (first % n_samples).to(tl.int32) + tl.arange(0, BLOCK)
    inside = first + tl.arange(0, BLOCK) < count
    return tl.program_id(0) // per_image, first // n_samples + lane // n_samples, lane % n_samples, inside


@triton.jit(do_not_specialize=Draw._fields)
def _perturb(
    arrays,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    first_sample,
    amount: tl.float64,
    N_LABELS: tl.constexpr,
    SCHEME: tl.constexpr,
    ROOM: tl.constexpr,
):
    unary_ptr, scores_ptr, site_id, n_sites, n_samples, apart = arrays
    n, i, r, inside = items(n_sites, n_samples, BLOCK)
    image, sample = first_image + n, (first_sample + r).to(tl.int64)
    site = tl.load(site_id + i, mask=inside, other=0)
    row = (n * n_sites + i) * N_LABELS
    chunk = n * tl.cdiv(n_samples, apart) + r // apart
    out = scores_ptr + (chunk * n_sites + i) * N_LABELS * apart + r % apart
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    scale = tl.full([1], amount, dtype)
    if SCHEME == _PLAIN:
        for g in range((N_LABELS + 3) // 4):
            w0, w1, w2, w3 = words(k0, k1, PLAIN, image, sample, site, g)
            for j in tl.static_range(4):
                k = 4 * g + j
                there = inside & (k < N_LABELS)
                gumbel = -fast_log(-tl.log(uniform(pick(w0, w1, w2, w3, j)).to(dtype)))
                score = tl.load(unary_ptr + row + k, mask=there, other=0.0)
                tl.store(out + k * apart, (score + scale * gumbel).to(dtype), mask=there)
    elif SCHEME == _LOGISTIC:
        first = tl.load(unary_ptr + row, mask=inside, other=0.0)
        second = tl.load(unary_ptr + row + 1, mask=inside, other=0.0)
        tl.store(out, first, mask=inside)
        tl.store(out + apart, (second - scale * logistic(k0, k1, image, sample, site, dtype)).to(dtype), mask=inside)
    elif SCHEME == _LAZY:
        _lazy((k0, k1, image, sample, site), unary_ptr + row, out, apart, inside, scale, N_LABELS, ROOM)
    else:
        dropped = inside & False
        if SCHEME == _DROP:
            w0, w1, w2, w3 = words(k0, k1, DROP, image, sample, site, 0)
            dropped = uniform(w0).to(tl.float64) < amount
        for k in range(N_LABELS):
            score = tl.load(unary_ptr + row + k, mask=inside, other=0.0)
            tl.store(out + k * apart, tl.where(dropped & (score > float("-inf")), 0.0, score), mask=inside)


@triton.jit
def _lazy(key, unary, out, apart, inside, scale, N_LABELS: tl.constexpr, ROOM: tl.constexpr):
    """Store minus the temperature times the logarithms of all clocks (see `reference.noise`)."""
    k0, k1, image, sample, site = key
    dtype: tl.constexpr = unary.dtype.element_ty
    best, peak = tl.zeros(site.shape, tl.int32), tl.full(site.shape, float("-inf"), dtype)
    for k in range(N_LABELS):
        score = tl.load(unary + k, mask=inside, other=0.0)
        best, peak = tl.where(score > peak, k, best), tl.maximum(peak, score)
    total = tl.zeros(site.shape, dtype)
    for k in range(N_LABELS):
        total += fast_exp((tl.load(unary + k, mask=inside, other=0.0) - peak) / scale)
    w0, w1, w2, w3 = words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0)
    word = pick(w0, w1, w2, w3, sample & 3)
    left = uniform(word).to(dtype) * total - 1.0  # what the cumulative distribution has to exceed, the best label first
    first = best
    for k in range(N_LABELS):
        power = fast_exp((tl.load(unary + k, mask=inside, other=0.0) - peak) / scale)
        power = tl.where(k == best, 0.0, power)
        first = tl.where((left > 0.0) & (power > 0.0), k, first)
        left -= power
    clock = fine_wait(word, 0, k0, k1, image, sample, site, dtype)
    normaliser = peak + scale * fast_log(total)
    for g in range((N_LABELS + ROOM - 1) // ROOM):
        b0, b1, b2, b3 = leading_bytes(k0, k1, image, sample, site, g, ROOM)
        for j in range(ROOM):
            label = tl.zeros(site.shape, tl.int32) + g * ROOM + j
            there = inside & (label < N_LABELS)
            wait = fine_wait(byte_of(b0, b1, b2, b3, label, ROOM), label + 1, k0, k1, image, sample, site, dtype)
            log_p = (tl.load(unary + label, mask=there, other=0.0) - normaliser) / scale
            log_clock = tl.where(label == first, fast_log(clock), later_clock(clock, wait, log_p))
            tl.store(out + label * apart, -scale * log_clock, mask=there)


@triton.jit(do_not_specialize=Draw._fields)
def _start(
    arrays, k0: tl.uint32, k1: tl.uint32, first_image, first_sample, N_LABELS: tl.constexpr, SCHEME: tl.constexpr
):
    unary_ptr, labels_ptr, site_id, n_sites, n_samples = arrays
    n, i, r, inside = items(n_sites, n_samples, BLOCK)
    image, sample = first_image + n, (first_sample + r).to(tl.int64)
    site = tl.load(site_id + i, mask=inside, other=0)
    row = (n * n_sites + i) * N_LABELS
    allowed = tl.zeros([BLOCK], tl.int32)
    for k in range(N_LABELS):
        allowed += (tl.load(unary_ptr + row + k, mask=inside, other=0.0) > float("-inf")).to(tl.int32)
    if SCHEME == _LOGISTIC:
        nth = tl.where(allowed == 2, (start_bits(k0, k1, image, sample, site) & 1).to(tl.int32), 0)
    else:
        if SCHEME == _LAZY:
            w0, w1, w2, w3 = words(k0, k1, START, image, sample >> 2, site, 0)
            word = pick(w0, w1, w2, w3, sample & 3)
        else:
            word, _, _, _ = words(k0, k1, START, image, sample, site, 0)
        nth = ((word.to(tl.int64) * allowed) >> 32).to(tl.int32)
    label = nth
    if tl.min(tl.where(inside, allowed, N_LABELS)) < N_LABELS:  # some labels are forbidden
        label = nth_allowed(unary_ptr + row, nth, inside, N_LABELS)
    place = labels_ptr + (n * n_sites + i) * n_samples + r
    tl.store(place, label.to(labels_ptr.dtype.element_ty), mask=inside)
