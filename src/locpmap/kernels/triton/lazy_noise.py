"""The lazy noise scheme (leading bits first, the rest only where needed); see `locpmap.kernels.reference.noise`."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from locpmap.kernels.triton.philox import LAZY_CLOCK, LAZY_FINE, LOGISTIC, LOGISTIC_FINE, START_BITS, pick, words

_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def fast_log(x):
    """Return log x; single precision uses the hardware's function, with error 2^-22 · max(1, |result|)."""
    if _INTERPRETED or x.dtype != tl.float32:
        return tl.log(x)
    else:
        return libdevice.fast_logf(x)


@triton.jit
def fast_exp(x):
    """Return e^x; single precision uses the hardware's function, which flushes results below 2^-126 to 0."""
    if _INTERPRETED or x.dtype != tl.float32:
        return tl.exp(x)
    else:
        return libdevice.fast_expf(x)


@triton.jit
def waiting_time(bits, dtype: tl.constexpr):
    """Return ``-log u`` for ``u = (bits + 1/2) / 2^32``, accurate near u = 0 and near u = 1."""
    near: tl.constexpr = 1.0 / 16 if dtype == tl.float32 else 1.0 / 256  # below it five terms of the series suffice
    rest = ((bits ^ 0xFFFFFFFF).to(dtype) + 0.5) * (1.0 / 4294967296.0)  # 1 - u
    series = rest * (1.0 + rest * (1.0 / 2 + rest * (1.0 / 3 + rest * (1.0 / 4 + rest * (1.0 / 5)))))
    return tl.where(rest < near, series, -fast_log((bits.to(dtype) + 0.5) * (1.0 / 4294967296.0)))


@triton.jit
def fine_wait(byte, m, k0, k1, image, sample, site, dtype: tl.constexpr):
    """Return `waiting_time` of the uniform with the given leading byte and the 24 bits of fine noise number m."""
    w0, w1, w2, w3 = words(k0, k1, LAZY_FINE, image, sample, site, m >> 2)
    return waiting_time((byte.to(tl.uint32) << 24) | (pick(w0, w1, w2, w3, m & 3) >> 8), dtype)


@triton.jit
def later_clock(clock, wait, log_p):
    """Return ``log(clock + wait / p)``; the first label's clock is negligible where 1 / p exceeds e^80."""
    rare = log_p < -80.0
    total = tl.where(rare, wait, clock + wait * fast_exp(tl.where(rare, 0.0, -log_p)))
    return fast_log(total) - tl.where(rare, log_p, 0.0)


@triton.jit
def log_odds(coarse, fine, dtype: tl.constexpr):
    """Return ``log(u / (1 - u))``; the low halves of ``coarse`` and ``fine`` are the bits 1-16 and 17-32 of u."""
    bits = (coarse << 16) | (fine & 0xFFFF)
    return fast_log((bits.to(dtype) + 0.5) / ((bits ^ 0xFFFFFFFF).to(dtype) + 0.5))


@triton.jit
def logistic(k0, k1, image, sample, site, dtype: tl.constexpr):
    """Return the logistic noise of two-label models, subtracted from label 1's unary; int64 ``sample``, ``site``."""
    which, shift = (sample >> 1) & 3, ((sample & 1) * 16).to(tl.uint32)
    w0, w1, w2, w3 = words(k0, k1, LOGISTIC, image, sample >> 3, site, 0)
    coarse = pick(w0, w1, w2, w3, which) >> shift
    w0, w1, w2, w3 = words(k0, k1, LOGISTIC_FINE, image, sample >> 3, site, 0)
    return log_odds(coarse, pick(w0, w1, w2, w3, which) >> shift, dtype)


@triton.jit
def start_bits(k0, k1, image, sample, site):
    """Return a word for two-label models: bit 0 is the random starting label of ``sample``, bit j of ``sample + j``."""
    w0, w1, w2, w3 = words(k0, k1, START_BITS, image, sample >> 7, site, 0)
    return pick(w0, w1, w2, w3, (sample >> 5) & 3) >> (sample & 31).to(tl.uint32)


def room_of(n_labels: int) -> int:
    """Return the number of labels whose leading bytes a sample takes from one Philox call."""
    return 4 if n_labels <= 4 else 8 if n_labels <= 8 else 16


@triton.jit
def leading_bytes(k0, k1, image, sample, site, g, ROOM: tl.constexpr):
    """Return four words; the first ``ROOM / 4`` hold the leading bytes of the ROOM labels from ``g · ROOM`` on."""
    w0, w1, w2, w3 = words(k0, k1, LAZY_CLOCK, image, sample // (16 // ROOM), site, g)
    return bytes_of_sample(w0, w1, w2, w3, sample % (16 // ROOM), ROOM)


@triton.jit
def bytes_of_sample(w0, w1, w2, w3, nth, ROOM: tl.constexpr):
    """Return the words of the nth sample of a Philox call; the first ``ROOM / 4`` of the four are valid."""
    if ROOM == 4:
        w0 = pick(w0, w1, w2, w3, nth)
    elif ROOM == 8:
        w0, w1 = tl.where(nth == 1, w2, w0), tl.where(nth == 1, w3, w1)
    return w0, w1, w2, w3


@triton.jit
def byte_of(b0, b1, b2, b3, k, ROOM: tl.constexpr):
    """Return the leading byte of label k from the words of ROOM labels, four bytes per word."""
    if ROOM == 16:
        b0, b1 = tl.where(k & 8 == 0, b0, b2), tl.where(k & 8 == 0, b1, b3)
    if ROOM > 4:
        b0 = tl.where(k & 4 == 0, b0, b1)
    return (b0 >> (k % 4 * 8).to(tl.uint32)).to(tl.int32) & 255
