"""The lazy noise scheme for use inside kernels; see `locpmap.kernels.reference.noise`."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from locpmap.kernels.triton.philox import LAZY_CLOCK, LOGISTIC, LOGISTIC_FINE, START_BITS, pick, words

_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def fast_log(x):
    """``log x``; in single precision the hardware's, whose error is 2^-22 of the larger of the result and 1."""
    if _INTERPRETED or x.dtype != tl.float32:
        result = tl.log(x)
    else:
        result = libdevice.fast_logf(x)
    return result


@triton.jit
def fast_exp(x):
    """``e^x``; in single precision the hardware's, which takes what would be below 2^-126 for 0."""
    if _INTERPRETED or x.dtype != tl.float32:
        result = tl.exp(x)
    else:
        result = libdevice.fast_expf(x)
    return result


@triton.jit
def waiting_time(bits, dtype: tl.constexpr):
    """``-log u`` of ``u = (bits + 1/2) / 2^32``, accurate at both ends."""
    near: tl.constexpr = 1.0 / 16 if dtype == tl.float32 else 1.0 / 256  # where a few terms of the series will do
    rest = ((bits ^ 0xFFFFFFFF).to(dtype) + 0.5) * (1.0 / 4294967296.0)  # 1 - u
    series = rest * (1.0 + rest * (1.0 / 2 + rest * (1.0 / 3 + rest * (1.0 / 4 + rest * (1.0 / 5)))))
    return tl.where(rest < near, series, -fast_log((bits.to(dtype) + 0.5) * (1.0 / 4294967296.0)))


@triton.jit
def log_odds(coarse, fine, dtype: tl.constexpr):
    """``log(u / (1 - u))`` of a uniform whose leading 16 bits and next 16 bits are the low ones of two words."""
    bits = (coarse << 16) | (fine & 0xFFFF)
    return fast_log((bits.to(dtype) + 0.5) / ((bits ^ 0xFFFFFFFF).to(dtype) + 0.5))


@triton.jit
def logistic(k0, k1, image, sample, site, dtype: tl.constexpr):
    """Two labels: how much less label 1 scores than its unary says; ``sample`` and ``site`` are int64 of one shape."""
    which, shift = (sample >> 1) & 3, ((sample & 1) * 16).to(tl.uint32)
    w0, w1, w2, w3 = words(k0, k1, LOGISTIC, image, sample >> 3, site, 0)
    coarse = pick(w0, w1, w2, w3, which) >> shift
    w0, w1, w2, w3 = words(k0, k1, LOGISTIC_FINE, image, sample >> 3, site, 0)
    return log_odds(coarse, pick(w0, w1, w2, w3, which) >> shift, dtype)


@triton.jit
def start_bits(k0, k1, image, sample, site):
    """Two labels: a word whose last bit is that of a random start; of the samples after it, those before."""
    w0, w1, w2, w3 = words(k0, k1, START_BITS, image, sample >> 7, site, 0)
    return pick(w0, w1, w2, w3, (sample >> 5) & 3) >> (sample & 31).to(tl.uint32)


@triton.jit
def leading_bytes(k0, k1, image, sample, site, g, ROOM: tl.constexpr):
    """More labels: words with the leading bytes of labels ``g · ROOM ..``, four to a word; beyond ROOM void."""
    w0, w1, w2, w3 = words(k0, k1, LAZY_CLOCK, image, sample // (16 // ROOM), site, g)
    return bytes_of_sample(w0, w1, w2, w3, sample % (16 // ROOM), ROOM)


@triton.jit
def bytes_of_sample(w0, w1, w2, w3, nth, ROOM: tl.constexpr):
    """The words of the nth of the samples that share a call of Philox, the first ``ROOM / 4`` of four."""
    if ROOM == 4:
        w0 = pick(w0, w1, w2, w3, nth)
    elif ROOM == 8:
        w0, w1 = tl.where(nth == 1, w2, w0), tl.where(nth == 1, w3, w1)
    return w0, w1, w2, w3


@triton.jit
def one_byte(low, high, k):
    """Byte k, 0 to 7, of two words."""
    if _INTERPRETED:
        result = (tl.where(k < 4, low, high) >> (k % 4 * 8).to(tl.uint32)).to(tl.int32)
    else:
        result = libdevice.byte_perm(low.to(tl.int32, bitcast=True), high.to(tl.int32, bitcast=True), k)
    return result & 255
