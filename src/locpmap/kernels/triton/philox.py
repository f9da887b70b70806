"""Philox-4x32-10 and uniform numbers from its words, as device functions; see `locpmap.kernels.reference.noise`."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from locpmap.kernels.reference import noise

PLAIN, LAZY_SITE, LAZY_CLOCK, LOGISTIC = (
    tl.constexpr(stream) for stream in (noise.PLAIN, noise.LAZY_SITE, noise.LAZY_CLOCK, noise.LOGISTIC)
)
START, START_BITS, CHAIN, DROP = (
    tl.constexpr(stream) for stream in (noise.START, noise.START_BITS, noise.CHAIN, noise.DROP)
)
LAZY_FINE, LOGISTIC_FINE, FIELD = (
    tl.constexpr(stream) for stream in (noise.LAZY_FINE, noise.LOGISTIC_FINE, noise.FIELD)
)


class Draw(NamedTuple):
    """The key and the first counters of the noise; kernels take its fields as separate scalars."""

    k0: Any
    k1: Any
    first_image: Any
    first_sample: Any


@triton.jit
def words(k0, k1, stream: tl.constexpr, image, sample, site, group):
    """Return the four words of a counter; ``image``, ``sample``, ``site`` and ``group`` are integers that broadcast."""
    # Adding zeros broadcasts all operands to one shape, including those that the compiler treats as constants.
    zero = (image + sample + site + group).to(tl.uint64) * 0
    c0 = (site + zero).to(tl.uint32)
    c1 = (((site + zero) >> 32) + (group + zero) * 65536).to(tl.uint32)
    c2 = (sample + zero).to(tl.uint32)
    c3 = (image + zero + stream * 268435456).to(tl.uint32)  # 2^28
    a, b = (k0 + zero).to(tl.uint32), (k1 + zero).to(tl.uint32)
    for _ in tl.static_range(10):
        product0, product1 = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (product1 >> 32).to(tl.uint32) ^ c1 ^ a, (product0 >> 32).to(tl.uint32) ^ c3 ^ b
        c1, c3 = product1.to(tl.uint32), product0.to(tl.uint32)
        a, b = (a + 0x9E3779B9).to(tl.uint32), (b + 0xBB67AE85).to(tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def pick(w0, w1, w2, w3, which):
    """Return the word number ``which`` of four."""
    return tl.where(which == 0, w0, tl.where(which == 1, w1, tl.where(which == 2, w2, w3)))


@triton.jit
def uniform(word):
    """Convert a word to a number strictly inside (0, 1), exact in single precision."""
    return ((word >> 9).to(tl.float32) + 0.5) * (1.0 / 8388608.0)
