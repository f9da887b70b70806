"""The best label of a site in the Potts climb with more than two labels.

A contest compares the first label (smallest clock, see `reference.noise`) with its rivals, the neighbours' labels;
weights are not negative, so no other label can win.  The first label's clock is t, label k's is ``t + E_k / p_k`` with
E_k a standard exponential.  The leading bytes of the uniforms behind t and E_k mostly prove that k loses.  Only
otherwise are the remaining bits drawn.
"""

import triton
import triton.language as tl

from locpmap.kernels.triton.climb.potts_grid import support
from locpmap.kernels.triton.lazy_noise import byte_of, fast_exp, fast_log, fine_wait, later_clock, leading_bytes

MARGIN = tl.constexpr(1.01)  # factor that keeps bounds valid under rounding in single precision
ENOUGH = tl.constexpr(80.0)  # e^80 times any clock exceeds every other clock


@triton.jit
def latest(tick, dtype: tl.constexpr):
    """Return an upper bound of the first label's clock (exponential variable), from its leading byte ``tick``."""
    return tl.where(tick == 0, 23.0, -fast_log(tl.maximum(tick, 1).to(dtype) * (1.0 / 256)))


@triton.jit
def could_win(gain, leading, log_p, late):
    """Return whether a label may beat the first one, where its neighbours add ``gain`` more, in units of noise.

    It wins if ``E < t p (e^gain - 1)``.  The leading byte bounds E from below; ``late`` bounds t from above.
    """
    least = -fast_log((leading + 1).to(gain.dtype) * (1.0 / 256))
    p = fast_exp(log_p)
    # The difference cancels where the gain is small; there the second bound, p · gain, is as tight.
    bar = tl.maximum(fast_exp(tl.minimum(log_p + gain, ENOUGH)) - p, p * gain)
    return least < bar * late


@triton.jit
def bytes_near(draw, image, sample, site, near, b0, b1, b2, b3, N_LABELS: tl.constexpr, ROOM: tl.constexpr):
    """Return the leading bytes of the four neighbours' labels; the given words hold those of the first ROOM labels."""
    left, right = byte_of(b0, b1, b2, b3, near[0], ROOM), byte_of(b0, b1, b2, b3, near[1], ROOM)
    up, down = byte_of(b0, b1, b2, b3, near[2], ROOM), byte_of(b0, b1, b2, b3, near[3], ROOM)
    for g in range(1, (N_LABELS + ROOM - 1) // ROOM):
        b0, b1, b2, b3 = leading_bytes(draw.k0, draw.k1, image, sample, site, g, ROOM)
        left = tl.where(near[0] // ROOM == g, byte_of(b0, b1, b2, b3, near[0], ROOM), left)
        right = tl.where(near[1] // ROOM == g, byte_of(b0, b1, b2, b3, near[1], ROOM), right)
        up = tl.where(near[2] // ROOM == g, byte_of(b0, b1, b2, b3, near[2], ROOM), up)
        down = tl.where(near[3] // ROOM == g, byte_of(b0, b1, b2, b3, near[3], ROOM), down)
    return left, right, up, down


@triton.jit
def pulls(weight, scale):
    """Return the neighbours' weights divided by the temperature."""
    return weight[0] / scale, weight[1] / scale, weight[2] / scale, weight[3] / scale


@triton.jit
def rivals(first, near, pull, leading, tick, log_p_ptr, inside):
    """Return a bit for each neighbour whose label may beat the first label."""
    own = support(first, near, pull)
    late = latest(tick, own.dtype) * MARGIN
    result = tl.zeros(first.shape, tl.int32)
    for side in tl.static_range(4):
        log_p = tl.load(log_p_ptr + near[side], mask=inside, other=float("-inf"))
        gain = support(near[side], near, pull) - own
        result |= could_win(gain, leading[side], log_p, late).to(tl.int32) << side
    return result


@triton.jit
def repeated(near):
    """Return a bit for each neighbour whose label equals that of an earlier neighbour."""
    found = tl.zeros_like(near[0])
    for side in tl.static_range(1, len(near)):
        for other in tl.static_range(side):
            found |= (near[side] == near[other]).to(tl.int32) << side
    return found


@triton.jit
def contest(key, first, tick, mine, near, weight, log_p_ptr, inside, scale, N_LABELS: tl.constexpr, ROOM: tl.constexpr):
    """Return the best labels, from all noise bits of the labels that may win; the current label wins ties."""
    draw, image, sample, site = key
    dtype: tl.constexpr = weight[0].dtype
    b0, b1, b2, b3 = leading_bytes(draw.k0, draw.k1, image, sample, site, 0, ROOM)
    leading = bytes_near(draw, image, sample, site, near, b0, b1, b2, b3, N_LABELS, ROOM)
    ahead = rivals(first, near, pulls(weight, scale), leading, tick, log_p_ptr, inside)
    left = tl.where(inside, ahead & ~repeated(near), 0)
    rings = fine_wait(tick, 0, draw.k0, draw.k1, image, sample, site, dtype)
    label = first
    top = -scale * fast_log(rings) + support(first, near, weight)
    held = tl.where(first == mine, top, float("-inf"))
    while tl.max(left) > 0:
        # Each lane takes its next rival; results of lanes without one are discarded.
        some = left > 0
        k = tl.where(left & 1 > 0, near[0], tl.where(left & 2 > 0, near[1], tl.where(left & 4 > 0, near[2], near[3])))
        byte = tl.where(left & 4 > 0, leading[2], leading[3])
        byte = tl.where(left & 1 > 0, leading[0], tl.where(left & 2 > 0, leading[1], byte))
        left &= left - 1
        wait = fine_wait(byte, k + 1, draw.k0, draw.k1, image, sample, site, dtype)
        log_p = tl.load(log_p_ptr + k, mask=some, other=0.0)
        score = -scale * later_clock(rings, wait, log_p) + support(k, near, weight)
        label = tl.where(some & (score > top), k, label)
        held = tl.where(some & (k == mine), score, held)
        top = tl.where(some, tl.maximum(top, score), top)
    return tl.where(top > held, label, mine)
