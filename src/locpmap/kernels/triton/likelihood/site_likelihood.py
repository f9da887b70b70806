"""Negative log conditionals of sites and their residuals; see the reference for the definition.

Each program processes a tile of sites.  If there are several samples, they are read twice: for the logarithm of the
mean probability, and for the residuals.
"""

import math

import triton
import triton.language as tl

from locpmap.kernels.likelihood import Losses, Part, Scores
from locpmap.kernels.model import Array
from locpmap.kernels.triton.local_scores import local_scores, pairs_of, sizes_of, strides_of


def site_likelihood(scores: Scores, labels: Array, samples: Array, weights: Array, losses: Losses, part: Part) -> None:
    """Write losses and residuals of the sites of a part."""
    sizes, (lo, hi, begin, stop) = sizes_of(scores, 1024, 128), part
    n_tiles = (hi - lo) * triton.cdiv(stop - begin, sizes.items)
    if n_tiles == 0:
        return
    n_samples = samples.shape[2]
    given = (labels.contiguous(), samples.contiguous(), weights, *strides_of(weights), n_samples)
    numbers = (lo, begin, stop, scores.unary.shape[1], math.log(n_samples))
    _site_likelihood[(n_tiles,)](scores.unary, pairs_of(scores), given, losses[:2], *numbers, sizes)


@triton.jit
def _log_softmax(scores):
    scores -= tl.max(scores, axis=1, keep_dims=True)
    return scores - tl.log(tl.sum(tl.exp(scores), axis=1, keep_dims=True))


@triton.jit(do_not_specialize=["lo", "begin", "stop"])
def _site_likelihood(
    unary, pairs, given, losses, lo, begin, stop, n_sites, LOG_SAMPLES: tl.constexpr, SIZES: tl.constexpr
):
    ONE_SAMPLE: tl.constexpr = LOG_SAMPLES == 0
    ITEMS: tl.constexpr = SIZES.items
    N_LABELS: tl.constexpr = SIZES.n_labels
    labels_ptr, samples_ptr, weights_ptr, weight_image, weight_site, n_samples = given
    value_ptr, residual_ptr = losses
    dtype: tl.constexpr = unary.dtype.element_ty
    k = tl.arange(0, SIZES.labels)[None, :]
    per_image = tl.cdiv(stop - begin, ITEMS)
    n = lo + (tl.program_id(0) // per_image).to(tl.int64)
    i = begin + (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS).to(tl.int64)
    inside = i < stop
    true = tl.load(labels_ptr + n * n_sites + i, mask=inside, other=-1).to(tl.int32)
    valid = true >= 0
    is_true = k == true[:, None]
    weight = tl.load(weights_ptr + n * weight_image + i * weight_site, mask=valid, other=0.0).to(dtype)
    own, around = unary + n * n_sites * N_LABELS, samples_ptr + n * n_sites * n_samples
    log_sum = tl.zeros([ITEMS], dtype)
    if not ONE_SAMPLE:
        # log Σ_m p(y_i | y^m) by log-sum-exp; terms may be -inf.
        peak = tl.full([ITEMS], float("-inf"), dtype)
        mass = tl.zeros([ITEMS], dtype)
        m = 0
        while m < n_samples:
            scores = local_scores(own, (around + m, n_samples, None), pairs, n, i, valid, SIZES)
            log_true = tl.sum(tl.where(is_true, _log_softmax(scores), 0.0), axis=1)
            higher = tl.maximum(peak, log_true)
            finite = tl.where(higher > float("-inf"), higher, 0.0)
            mass = mass * tl.exp(peak - finite) + tl.exp(log_true - finite)
            peak = higher
            m += 1
        log_sum = peak + tl.log(tl.where(mass > 0, mass, 1.0))
    place = residual_ptr + ((n * n_sites + i) * n_samples)[:, None] * N_LABELS + k
    m = 0
    while m < n_samples:
        scores = local_scores(own, (around + m, n_samples, None), pairs, n, i, valid, SIZES)
        log_p = _log_softmax(scores)
        log_true = tl.sum(tl.where(is_true, log_p, 0.0), axis=1)
        if ONE_SAMPLE:
            log_sum = log_true
        allowed = log_sum > float("-inf")  # other sites have a forbidden label: an infinite loss, equal shares
        equal = tl.zeros([ITEMS], dtype) - LOG_SAMPLES
        share = weight * tl.exp(tl.where(allowed, log_true - tl.where(allowed, log_sum, 0.0), equal))
        residual = share[:, None] * (tl.exp(log_p) - is_true.to(dtype))
        residual = tl.where(valid[:, None], residual, 0.0)
        tl.store(place + m * N_LABELS, residual, mask=inside[:, None] & (k < N_LABELS))
        m += 1
    loss = tl.where(valid, weight * (LOG_SAMPLES - log_sum), 0.0)
    tl.store(value_ptr + n * n_sites + i, loss, mask=inside)
