"""What the samples of a climb start with: perturbed unaries, and first labels; see `locpmap.kernels.reference.noise`.

Scores are laid out (n, S, L, R), labels (n, S, R): neighbouring lanes take neighbouring samples of a site.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels import perturbation as schemes
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.triton.philox import (
    DROP,
    LAZY_CLOCK,
    LAZY_FINE,
    LAZY_SITE,
    LOGISTIC,
    LOGISTIC_FINE,
    PLAIN,
    START,
    START_BITS,
    pick,
    uniform,
    words,
)

LAZY = 4  # the lazy scheme for more than two labels, beside those of `locpmap.kernels.perturbation`
BLOCK = 256

_PLAIN, _LOGISTIC, _DROP, _LAZY = (
    tl.constexpr(scheme) for scheme in (schemes.PLAIN, schemes.LOGISTIC, schemes.DROP, LAZY)
)


def perturb(
    unary: torch.Tensor,
    site_id: torch.Tensor,
    perturbation: Perturbation,
    first_image: int,
    first_sample: int,
    n_samples: int,
) -> torch.Tensor:
    """The unaries (n, S, L) that samples ``first_sample ..`` climb on, (n, S, L, R) in the same type.

    The images are numbers ``first_image ..`` in the noise's keys.
    """
    n_images, n_sites, n_labels = unary.shape
    scheme, amount, k0, k1 = perturbation
    scores = torch.empty((n_images, n_sites, n_labels, n_samples), dtype=unary.dtype, device=unary.device)
    log_p, top = unary, unary
    if scheme == LAZY:
        log_p = torch.log_softmax((unary - unary.amax(dim=2, keepdim=True)) / amount, dim=2)
        top = log_p.argmax(dim=2).to(torch.int32)
    room = 4 if n_labels <= 4 else 8 if n_labels <= 8 else 16
    grid = (n_images * triton.cdiv(n_sites * n_samples, BLOCK),)
    sizes = (n_sites, n_samples, n_labels, room)
    key = (amount, k0, k1, first_image, first_sample)
    _perturb[grid](unary, log_p, top, site_id, scores, *key, *sizes, scheme, BLOCK)
    return scores


def begin(
    unary: torch.Tensor,
    scores: torch.Tensor,
    site_id: torch.Tensor,
    perturbation: Perturbation,
    start: int,
    given: torch.Tensor,
    first_image: int,
    first_sample: int,
    labels: torch.Tensor,
) -> None:
    """Fill ``labels`` (n, S, R) with what the climbs on ``scores`` (n, S, L, R) begin at; ``given`` is (n, S)."""
    n_images, n_sites, n_labels, n_samples = scores.shape
    if start == schemes.PERTURBED:
        labels.copy_(scores.argmax(dim=2))
    elif start == schemes.GIVEN:
        labels.copy_(given[:, :, None].expand(labels.shape))
    else:
        grid = (n_images * triton.cdiv(n_sites * n_samples, BLOCK),)
        key = (perturbation.k0, perturbation.k1, first_image, first_sample)
        _start[grid](unary, site_id, labels, *key, n_sites, n_samples, n_labels, perturbation.scheme, BLOCK)


@triton.jit
def items(n_sites, n_samples, BLOCK: tl.constexpr):
    """Image, site and sample of every lane, and whether there is such an item: samples go fastest."""
    per_image = (n_sites * n_samples + BLOCK - 1) // BLOCK
    image = (tl.program_id(0) // per_image).to(tl.int64)
    lane = (tl.program_id(0) % per_image) * BLOCK + tl.arange(0, BLOCK)
    return image, lane // n_samples, lane % n_samples, lane < n_sites * n_samples


@triton.jit
def waiting_time(bits, dtype: tl.constexpr):
    """``-log u`` of ``u = (bits + 1/2) / 2^32``, accurate at both ends."""
    rest = ((4294967295 - bits.to(tl.int64)).to(dtype) + 0.5) * (1.0 / 4294967296.0)  # 1 - u
    near_one = rest * (1.0 + rest * (1.0 / 2 + rest * (1.0 / 3 + rest * (1.0 / 4 + rest * (1.0 / 5)))))
    return tl.where(rest < 1.0 / 256, near_one, -tl.log((bits.to(dtype) + 0.5) * (1.0 / 4294967296.0)))


@triton.jit
def _perturb(
    unary_ptr,
    log_p_ptr,
    top_ptr,
    site_ptr,
    scores_ptr,
    amount: tl.float64,
    k0,
    k1,
    first_image,
    first_sample,
    n_sites,
    n_samples,
    N_LABELS: tl.constexpr,
    ROOM: tl.constexpr,
    SCHEME: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n, i, r, inside = items(n_sites, n_samples, BLOCK)
    image, sample = first_image + n, (first_sample + r).to(tl.int64)
    site = tl.load(site_ptr + i, mask=inside, other=0)
    row = (n * n_sites + i) * N_LABELS
    out = scores_ptr + row * n_samples + r
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    scale = tl.full([1], amount, dtype)
    if SCHEME == _PLAIN:
        for g in range((N_LABELS + 3) // 4):
            w0, w1, w2, w3 = words(k0, k1, PLAIN, image, sample, site, g)
            for j in tl.static_range(4):
                k = 4 * g + j
                there = inside & (k < N_LABELS)
                gumbel = -tl.log(-tl.log(uniform(pick(w0, w1, w2, w3, j)).to(dtype)))
                score = tl.load(unary_ptr + row + k, mask=there, other=0.0)
                tl.store(out + k * n_samples, (score + scale * gumbel).to(dtype), mask=there)
    elif SCHEME == _LOGISTIC:
        which, shift = (sample >> 1) & 3, ((sample & 1) * 16).to(tl.uint32)
        w0, w1, w2, w3 = words(k0, k1, LOGISTIC, image, sample >> 3, site, 0)
        coarse = (pick(w0, w1, w2, w3, which) >> shift) & 0xFFFF
        w0, w1, w2, w3 = words(k0, k1, LOGISTIC_FINE, image, sample >> 3, site, 0)
        bits = (coarse * 65536 + ((pick(w0, w1, w2, w3, which) >> shift) & 0xFFFF)).to(tl.uint32)
        odds = (bits.to(dtype) + 0.5) / ((4294967295 - bits.to(tl.int64)).to(dtype) + 0.5)
        first = tl.load(unary_ptr + row, mask=inside, other=0.0)
        second = tl.load(unary_ptr + row + 1, mask=inside, other=0.0)
        tl.store(out, first, mask=inside)
        tl.store(out + n_samples, (second - scale * tl.log(odds)).to(dtype), mask=inside)
    elif SCHEME == _LAZY:
        w0, w1, w2, w3 = words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0)
        first = pick(w0, w1, w2, w3, sample & 3)
        top = tl.load(top_ptr + n * n_sites + i, mask=inside, other=0)
        winner = _first_label(log_p_ptr + row, top, uniform(first).to(dtype), inside, N_LABELS)
        w0, w1, w2, w3 = words(k0, k1, LAZY_FINE, image, sample, site, 0)
        clock = tl.log(waiting_time((first & 255) * 16777216 + (w0 >> 8), dtype))
        for g in range((N_LABELS + ROOM - 1) // ROOM):  # ROOM labels to a call for their leading bytes
            b0, b1, b2, b3 = words(k0, k1, LAZY_CLOCK, image, sample // (16 // ROOM), site, g)
            if g > 0:
                w0, w1, w2, w3 = words(k0, k1, LAZY_FINE, image, sample, site, g * (ROOM // 4))
            for j in tl.static_range(ROOM):
                k = g * ROOM + j
                if j % 4 == 3:  # four labels to a call for the rest, from label 3 on
                    w0, w1, w2, w3 = words(k0, k1, LAZY_FINE, image, sample, site, (k + 1) // 4)
                position = (sample % (16 // ROOM)) * ROOM + j  # of the byte among sixteen
                coarse = (pick(b0, b1, b2, b3, position // 4) >> ((position % 4) * 8).to(tl.uint32)) & 255
                bits = coarse * 16777216 + (pick(w0, w1, w2, w3, (j + 1) % 4) >> 8)
                there = inside & (k < N_LABELS)
                wait = tl.log(waiting_time(bits, dtype)) - tl.load(log_p_ptr + row + k, mask=there, other=0.0)
                # log(e^clock + e^wait), with no difference of infinities
                high, low = tl.maximum(clock, wait), tl.minimum(clock, wait)
                later = tl.where(high == float("inf"), high, high + tl.log(1.0 + tl.exp(low - high)))
                tl.store(out + k * n_samples, (-scale * tl.where(k == winner, clock, later)).to(dtype), mask=there)
    else:
        dropped = inside & False
        if SCHEME == _DROP:
            w0, w1, w2, w3 = words(k0, k1, DROP, image, sample, site, 0)
            dropped = uniform(w0).to(tl.float64) < amount
        for k in range(N_LABELS):
            score = tl.load(unary_ptr + row + k, mask=inside, other=0.0)
            tl.store(out + k * n_samples, tl.where(dropped & (score > float("-inf")), 0.0, score), mask=inside)


@triton.jit
def _first_label(log_p_ptr, top, u, inside, N_LABELS: tl.constexpr):
    """The inverse of the cumulative distribution at u, the likeliest label first and then in natural order."""
    total = tl.exp(tl.load(log_p_ptr + top, mask=inside, other=0.0))
    winner, last = top, top
    open_ = u > total
    for k in range(N_LABELS):
        p = tl.where(top == k, 0.0, tl.exp(tl.load(log_p_ptr + k, mask=inside, other=0.0)))
        total += p
        winner = tl.where(open_ & (p > 0.0) & (u <= total), k, winner)
        open_ = open_ & (u > total)
        last = tl.where(p > 0.0, k, last)
    return tl.where(open_, last, winner)


@triton.jit
def _start(
    unary_ptr,
    site_ptr,
    labels_ptr,
    k0,
    k1,
    first_image,
    first_sample,
    n_sites,
    n_samples,
    N_LABELS: tl.constexpr,
    SCHEME: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n, i, r, inside = items(n_sites, n_samples, BLOCK)
    image, sample = first_image + n, (first_sample + r).to(tl.int64)
    site = tl.load(site_ptr + i, mask=inside, other=0)
    row = (n * n_sites + i) * N_LABELS
    allowed = tl.zeros([BLOCK], tl.int64)
    for k in range(N_LABELS):
        allowed += (tl.load(unary_ptr + row + k, mask=inside, other=0.0) > float("-inf")).to(tl.int64)
    if SCHEME == _LOGISTIC:
        w0, w1, w2, w3 = words(k0, k1, START_BITS, image, sample >> 7, site, 0)
        bit = (pick(w0, w1, w2, w3, (sample >> 5) & 3) >> (sample & 31).to(tl.uint32)) & 1
        nth = tl.where(allowed == 2, bit.to(tl.int64), 0)
    elif SCHEME == _LAZY:
        w0, w1, w2, w3 = words(k0, k1, START, image, sample >> 2, site, 0)
        nth = (pick(w0, w1, w2, w3, sample & 3).to(tl.int64) * allowed) >> 32
    else:
        w0, w1, w2, w3 = words(k0, k1, START, image, sample, site, 0)
        nth = (w0.to(tl.int64) * allowed) >> 32
    label = tl.zeros([BLOCK], tl.int64)
    seen = tl.zeros([BLOCK], tl.int64)
    for k in range(N_LABELS):
        free = tl.load(unary_ptr + row + k, mask=inside, other=0.0) > float("-inf")
        label = tl.where(free & (seen == nth), k, label)
        seen += free.to(tl.int64)
    place = labels_ptr + (n * n_sites + i) * n_samples + r
    tl.store(place, label.to(labels_ptr.dtype.element_ty), mask=inside)
