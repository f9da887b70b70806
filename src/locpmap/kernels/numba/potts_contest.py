"""The *contest* of labels at a site: find the label with the largest perturbed score given the neighbours.

In the lazy noise scheme (`reference.noise`) a label's score is minus the log of its *clock*: the smallest clock wins.
The first label's clock is t, that of label k is ``t + E_k / p_k`` with E_k ~ Exp(1); ``E_k / p_k`` is its *wait*.
Neighbours with a label, its *holders*, multiply its clock by the *pull*, ``exp(-their weights / temperature)``.  Only
the first label and the labels of neighbours can win.  Each stage of a visit processes the lanes (samples) that the
previous one left undecided:

1. If the holders of the first label outweigh the other neighbours, the first label wins.
2. The leading bytes of the uniforms bound every clock from both sides, in single precision with a margin for rounding.
   In most lanes one label wins for any value of the remaining bits.
3. All 32 bits are used, in double precision and in logarithms.
"""

import math

import numpy as np

from locpmap.kernels.numba.bits import bit_mask, trailing_zeros, zero_bytes
from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.noise import joined, site_words
from locpmap.kernels.reference.noise import LAZY_CLOCK

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_2, _4, _8, _16, _24 = np.uint64(2), np.uint64(4), np.uint64(8), np.uint64(16), np.uint64(24)
_32, _40 = np.uint64(32), np.uint64(40)
_BYTE, _LOW = np.uint64(0xFF), np.uint64(0xFFFFFFFF)
_F1 = np.float32(1)
_UP, _DOWN = np.float32(1 + 4e-6), np.float32(1 - 4e-6)  # margins for rounding in single precision

OPEN = 40  # verdict "undecided", for stage 3: the position of the current label in `packed`
NOBODY = 16  # index of the holders of a label that an earlier neighbour already represents


def _bounds():
    """Return, per leading byte, the minimum and maximum of ``-log u``, then of ``1 / -log u``; (256 · 4,)."""
    edge = -np.log(np.clip(np.arange(257) / 256, 2.0**-33, 1 - 2.0**-33))
    least, greatest = edge[1:] * (1 - 2e-5), edge[:-1] * (1 + 2e-5)
    return np.stack([least, greatest, 1 / greatest, 1 / least], axis=1).astype(np.float32).ravel()


def _holders():
    """Map the pairs of agreeing neighbours (8 bits, cyclic distance 1 and 2) to the set of holders of each label."""
    table = np.zeros((256, 4), np.uint8)
    for code in range(256):
        same = np.eye(4, dtype=bool)
        for j in range(8):
            a, b = j % 4, (j + 1 + j // 4) % 4
            if code >> j & 1:
                same[a, b] = same[b, a] = True
        for j in range(4):
            table[code, j] = NOBODY if same[j, :j].any() else same[j] @ [1, 2, 4, 8]
    return table.view(np.uint32).ravel()


def _verdicts():
    """Map the code of `judge` to the position of the winning label in ``packed``."""
    table = np.full(64, OPEN, np.uint8)
    for j in range(4):
        table[32 + (1 << j)] = 8 * j  # neighbour j's label beats the first label and all others
    table[16:32] = table[48:] = 32  # the first label beats the labels of all neighbours
    return table


BOUNDS, HOLDERS, VERDICTS = _bounds(), _holders(), _verdicts()


@inlined
def bit(flag, n):
    """Return a flag as bit n of a byte."""
    return np.uint8(np.uint8(flag) << np.uint8(n))


@inner
def visit_row(field, draw, sites, scratch, y, dirty, r, slot0, site0, c0):
    """Visit the sites of one colour in row r (every second from column c0); return the changed lanes."""
    first, tick, _, inverse_p, pull, safe = sites
    bounds, holder_sets, verdicts = scratch.bounds, scratch.holder_sets, scratch.verdicts
    flags, clocks, rivals, packed, code = scratch.flags, scratch.clocks, scratch.rivals, scratch.packed, scratch.code
    lanes = scratch.lane
    k0, k1, image, first_sample = draw
    n_lanes, n_labels = y.shape[1], field.unary.shape[1]
    height, width = field.down.shape[0] + 1, field.right.shape[1] + 1
    flags8 = flags.view(np.uint64)
    clock_words = clocks.view(np.uint32)
    stride = np.uint64(len(clocks) >> 6)
    share = np.uint64(2 if stride == 4 else 1 if stride == 8 else 0)
    moved = _ZERO
    for c in range(c0, width, 2):
        i, slot = r * width + c, slot0 + c
        mask = dirty[i]
        if mask == _ZERO:
            continue
        dirty[i] = _ZERO
        n0 = i - 1 if c > 0 else i
        n1 = i + 1 if c < width - 1 else i
        n2 = i - width if r > 0 else i
        n3 = i + width if r < height - 1 else i
        # Stage 1, vectorised over lanes: which neighbours hold the first label, and whether that decides the site.
        held = safe[slot]
        for lane in range(n_lanes):
            a = first[slot, lane]
            agree = (
                bit(y[n0, lane] == a, 0)
                | bit(y[n1, lane] == a, 1)
                | bit(y[n2, lane] == a, 2)
                | bit(y[n3, lane] == a, 3)
            )
            keep = np.uint8((held >> np.uint16(agree)) & np.uint16(1))
            flags[lane] = keep | bit(keep & np.uint8(a != y[i, lane]), 1) | bit(agree, 2)
        changed = bit_mask(flags8, 0, n_lanes, 1) & mask
        undecided = mask & ~bit_mask(flags8, 0, n_lanes, 0)
        if changed:
            for lane in range(n_lanes):
                y[i, lane] ^= np.uint8(y[i, lane] ^ first[slot, lane]) & np.uint8(-(np.int64(flags[lane] >> 1) & 1))
        if undecided:
            # Stage 2.  Draw the leading bytes of the waits, sixteen per call of Philox.
            todo = undecided
            while todo:
                lane = trailing_zeros(todo)
                lead = lane >> share << share
                todo &= ~(((_ONE << (_ONE << share)) - _ONE) << lead)
                groups = _ONE
                if n_labels > 16:
                    groups = _ONE << np.uint64(y[n0, lane] >> 4) | _ONE << np.uint64(y[n1, lane] >> 4)
                    groups |= _ONE << np.uint64(y[n2, lane] >> 4) | _ONE << np.uint64(y[n3, lane] >> 4)
                while groups:
                    g = trailing_zeros(groups)
                    groups &= groups - _ONE
                    four = site_words(k0, k1, LAZY_CLOCK, image, (first_sample + lane) >> share, site0 + c, g)
                    w = (lead * stride >> _2) + _4 * g
                    clock_words[w], clock_words[w + _ONE] = four[0], four[1]
                    clock_words[w + _2], clock_words[w + _2 + _ONE] = four[2], four[3]
            n_slow = 0
            todo = undecided
            while todo:
                lane = trailing_zeros(todo)
                todo &= todo - _ONE
                j = n_slow
                n_slow += 1
                four_labels = np.uint64(y[n0, lane]) | np.uint64(y[n1, lane]) << _8
                four_labels |= np.uint64(y[n2, lane]) << _16 | np.uint64(y[n3, lane]) << _24
                twice = four_labels | four_labels << _32
                next_one, next_but_one = four_labels ^ (twice >> _8 & _LOW), four_labels ^ twice >> _16
                holders = holder_sets[zero_bytes(next_one | next_but_one << _32)]
                lanes[j] = lane
                packed[j] = four_labels | np.uint64(first[slot, lane]) << _32 | np.uint64(y[i, lane]) << _40
                for n in range(4):
                    k = four_labels >> np.uint64(8 * n) & _BYTE
                    b = 4 * np.int64(clocks[lane * stride + k])
                    x = inverse_p[slot, k]
                    rivals[64 * n + j] = bounds[b] * x
                    rivals[256 + 64 * n + j] = bounds[b + 1] * x
                    rivals[512 + 64 * n + j] = pull[slot, (holders >> np.uint32(8 * n)) & np.uint32(255)]
                rivals[768 + j] = pull[slot, flags[lane] >> 2]
                b = 4 * np.int64(tick[slot, lane])
                rivals[832 + j] = bounds[b + 2]
                rivals[896 + j] = bounds[b + 3]
            judge(rivals, code, n_slow + 3 & -4)
            unclear = 0
            for j in range(n_slow):
                six, lane = packed[j], lanes[j]
                shift = np.uint64(verdicts[code[j]])
                label = six >> shift & _BYTE
                changed |= np.uint64(label != six >> _40) << lane
                y[i, lane] = label
                code[unclear], packed[unclear], lanes[unclear] = code[j], six, lane
                unclear += shift == np.uint64(OPEN)
            for j in range(unclear):  # stage 3
                lane = lanes[j]
                label = settle(field, draw, sites, clocks, packed[j], i, slot, r, c, site0 + c, lane, lane * stride)
                changed |= np.uint64(label != y[i, lane]) << lane
                y[i, lane] = label
        if changed:
            moved |= changed
            dirty[n0] |= changed
            dirty[n1] |= changed
            dirty[n2] |= changed
            dirty[n3] |= changed
    return moved


@inlined
def judge(rivals, code, n):
    """Run stage 2 for n lanes, without branches so that it vectorises; clocks are in units of the first label's.

    ``rivals`` has rows of 64: minimum and maximum waits of the four neighbours' labels (0-3, 4-7), their pulls (8-11),
    the first label's pull (12), and the minimum and maximum of the inverse of its clock (13, 14).
    Code bits 0-3: the label of neighbour j may beat those of the others.  Bit 4: the first label beats all of them.
    Bit 5: the label of some neighbour beats the first label.
    """
    for j in range(n):
        own, slowest, quickest = rivals[768 + j], rivals[832 + j], rivals[896 + j]
        pull0, pull1, pull2, pull3 = rivals[512 + j], rivals[576 + j], rivals[640 + j], rivals[704 + j]
        low0, high0 = (_F1 + rivals[j] * slowest) * pull0, (_F1 + rivals[256 + j] * quickest) * pull0
        low1, high1 = (_F1 + rivals[64 + j] * slowest) * pull1, (_F1 + rivals[320 + j] * quickest) * pull1
        low2, high2 = (_F1 + rivals[128 + j] * slowest) * pull2, (_F1 + rivals[384 + j] * quickest) * pull2
        low3, high3 = (_F1 + rivals[192 + j] * slowest) * pull3, (_F1 + rivals[448 + j] * quickest) * pull3
        high = high0 if high0 < high1 else high1
        high = high if high < high2 else high2
        high = high if high < high3 else high3
        bar, top = high * _UP, own * _UP
        near = np.uint32(low0 < bar) | np.uint32(np.uint32(low1 < bar) << np.uint32(1))
        near |= np.uint32(np.uint32(low2 < bar) << np.uint32(2)) | np.uint32(np.uint32(low3 < bar) << np.uint32(3))
        rest = np.uint32((low0 >= top) & (low1 >= top) & (low2 >= top) & (low3 >= top))
        ahead = np.uint32(high <= own * _DOWN)
        code[j] = near | np.uint32(rest << np.uint32(4)) | np.uint32(ahead << np.uint32(5))


@inner
def settle(field, draw, sites, clocks, packed, i, slot, r, c, site, lane, offset):
    """Run stage 3 for one lane, whose leading bytes begin at ``clocks[offset]``; return the winning label."""
    unary, right, down, inverse_temperature = field
    noise = (draw.k0, draw.k1, draw.image, draw.first_sample + lane)
    best = sites.best[slot]
    first = packed >> _32 & _BYTE
    log_total = math.log(sites.inverse_p[slot, best])
    winner, score, log_clock = first, -np.inf, 0.0
    for n in range(4, -1, -1):
        k = packed >> np.uint64(8 * n) & _BYTE
        weight = 0.0
        if c > 0 and packed & _BYTE == k:
            weight += right[r, c - 1]
        if c < right.shape[1] and packed >> _8 & _BYTE == k:
            weight += right[r, c]
        if r > 0 and packed >> _16 & _BYTE == k:
            weight += down[r - 1, c]
        if r < down.shape[0] and packed >> _24 & _BYTE == k:
            weight += down[r, c]
        weight *= inverse_temperature
        if n == 4:
            log_clock = math.log(-math.log(joined(sites.tick[slot, lane], 0, noise, site)))
            score = weight - log_clock
        elif k != first and weight - log_clock > score and unary[i, k] > -np.inf:
            log_p = (np.float64(unary[i, k]) - unary[i, best]) * inverse_temperature - log_total
            wait = math.log(-math.log(joined(clocks[offset + k], np.int64(k) + 1, noise, site))) - log_p
            rival = weight - max(wait, log_clock) - math.log1p(math.exp(-abs(wait - log_clock)))
            if rival > score:
                winner, score = k, rival
    return winner
