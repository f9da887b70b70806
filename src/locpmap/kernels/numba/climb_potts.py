import math
from typing import NamedTuple
import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from locpmap.kernels.numba.noise import pick, site_words, uniform
from locpmap.kernels.reference.noise import BITS, LAZY_CLOCK, LAZY_FINE, LAZY_SITE, START
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM

SWEEPS_PER_PASS = 6
UNKNOWN = 255
_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
_U8, _U32 = np.uint64(8), np.uint64(32)
_BYTE = np.uint64(0xFF)
_STRONG = np.float32(60)
_F0, _F1, _INF, _NAN = np.float32(0), np.float32(1), np.float32(np.inf), np.float32(np.nan)
_UP, _DOWN = np.float32(1 + 4e-6), np.float32(1 - 4e-6)

class Field(NamedTuple):
    unary: object
    right: object
    down: object
    inverse_temperature: object

class Draw(NamedTuple):
    k0: object
    k1: object
    image: object
    first_sample: object

class Sites(NamedTuple):
    first: object
    tick: object
    best: object
    inverse_p: object
    pull: object
    safe: object

class Scratch(NamedTuple):
    bounds: object
    holder_sets: object
    verdicts: object
    weights: object
    tail: object
    words: object
    flags: object
    clocks: object
    rivals: object
    packed: object
    lane: object
    code: object

def _bounds():
    edge = -np.log(np.clip(np.arange(257) / 256, 2.0**-33, 1 - 2.0**-33))
    table = np.stack([edge[1:] * (1 - 2e-5), edge[:-1] * (1 + 2e-5), (1 - 2e-5) / edge[:-1], (1 + 2e-5) / edge[1:]], axis=1)
    return table.astype(np.float32).ravel()

def _holders():
    table = np.zeros((256, 4), np.uint8)
    for code in range(256):
        same = np.eye(4, dtype=bool)
        for j in range(8):
            a, b = j % 4, (j + 1 + j // 4) % 4
            if code >> j & 1:
                same[a, b] = same[b, a] = True
        for j in range(4):
            table[code, j] = 16 if same[j, :j].any() else same[j] @ [1, 2, 4, 8]
    return table.view(np.uint32).ravel()

def _verdicts():
    table = np.full(64, 40, np.uint8)
    for j in range(4):
        table[32 + (1 << j)] = 8 * j
    table[16:32] = table[48:] = 32
    return table

BOUNDS, HOLDERS, VERDICTS = _bounds(), _holders(), _verdicts()

@intrinsic
def trailing_zeros(context, x):
    def code(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))
    return types.uint64(types.uint64), code

@njit(forceinline=True, error_model="numpy")
def bit_mask(flags, n, shift):
    mask = _ZERO
    for j in range((n + 7) >> 3):
        byte = (((flags[j] >> np.uint64(shift)) & np.uint64(0x0101010101010101)) * np.uint64(0x0102040810204080)) >> np.uint64(56)
        mask |= byte << np.uint64(8 * j)
    return mask

@njit(forceinline=True, error_model="numpy")
def zero_bytes(x):
    """Bit j is set iff byte j of x is 0."""
    seven = np.uint64(0x7F7F7F7F7F7F7F7F)
    nonzero = ((x & seven) + seven) | x | seven
    return ((~nonzero >> np.uint64(7)) * np.uint64(0x0102040810204080)) >> np.uint64(56)

@njit(forceinline=True, error_model="numpy")
def exponential(x):
    """exp(x) for x <= 0 to 1e-11, at least exp(-700); without branches, so that loops of it vectorise."""
    x = max(x, -700.0)
    n = math.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 0.693145751953125 - n * 1.42860682030941723212e-6
    series = 1 / 362880
    for factorial in (40320, 5040, 720, 120, 24, 6, 2, 1, 1):
        series = series * r + 1 / factorial
    return series * np.int64((np.int64(n) + 1023) << 52).view(np.float64)

@njit(error_model="numpy")
def describe_row(field, draw, sites, scratch, dirty, r, slot0, site0, c0, step):
    unary, right, down, inverse_temperature = field
    first, tick, best, inverse_p, pull, safe = sites
    weights, tail, words = scratch.weights, scratch.tail, scratch.words
    flags, flags8 = scratch.flags, scratch.flags.view(np.uint64)
    word = words.reshape(-1)
    n_labels, n_lanes = unary.shape[1], first.shape[1]
    height, width = down.shape[0] + 1, right.shape[1] + 1
    for c in range(c0, width, step):
        i, slot = r * width + c, slot0 + c
        if dirty[i] == _ZERO or best[slot] != UNKNOWN:
            continue
        b, top = 0, unary[i, 0]
        for k in range(1, n_labels):
            if unary[i, k] > top:
                b, top = k, unary[i, k]
        best[slot] = b
        for k in range(n_labels):
            tail[k] = exponential((np.float64(unary[i, k]) - top) * inverse_temperature)
        tail[b] = 0.0
        for k in range(n_labels):
            inverse_p[slot, k] = _F1 / np.float32(tail[k])
        inverse_p[slot, b] = _F1
        total = 0.0
        for k in range(n_labels):
            total += tail[k]
            tail[k] = total
        total += 1.0
        for k in range(n_labels):
            inverse_p[slot, k] *= np.float32(total)

        weights[0] = right[r, c - 1] * inverse_temperature if c > 0 else 0.0
        weights[1] = right[r, c] * inverse_temperature if c < width - 1 else 0.0
        weights[2] = down[r - 1, c] * inverse_temperature if r > 0 else 0.0
        weights[3] = down[r, c] * inverse_temperature if r < height - 1 else 0.0
        pull[slot, 0] = _F1 if weights[0] + weights[1] + weights[2] + weights[3] <= 60.0 else _NAN
        for j in range(len(weights)):
            weights[j] = exponential(-weights[j])
        for j in range(4):
            for s in range(1 << j):
                pull[slot, (1 << j) + s] = pull[slot, s] * np.float32(weights[j])
        pull[slot, 16] = _INF
        held = np.uint16(0)
        for s in range(16):
            held |= np.uint16(pull[slot, s] <= pull[slot, 15 - s]) << np.uint16(s)
        safe[slot] = held

        for j in range((n_lanes + 3) >> 2):
            words[j, 0], words[j, 1], words[j, 2], words[j, 3] = site_words(draw.k0, draw.k1, LAZY_SITE, draw.image, (draw.first_sample >> 2) + j, site0 + c, 0)
        limit = np.uint32(math.floor(2.0**BITS / total + 0.5))
        for l in range(n_lanes):
            flags[l] = word[l] >> np.uint32(32 - BITS) >= limit
        for l in range(n_lanes):
            tick[slot, l] = word[l]
        for l in range(n_lanes):
            first[slot, l] = b
        others = bit_mask(flags8, n_lanes, 0) & (_ALL >> np.uint64(64 - n_lanes))
        while others:
            l = trailing_zeros(others)
            others &= others - _ONE
            t = uniform(word[l]) * total - 1.0
            k = 0
            for j in range(n_labels - 1):
                k += t > tail[j]
            first[slot, l] = k

@njit(error_model="numpy")
def start_row(field, draw, sites, scratch, y, start, given, r, slot0, site0, skipped):
    """skipped: colour (column parity) of the sites that need no start, or 2"""
    unary = field.unary
    n_labels, n_lanes, width = unary.shape[1], y.shape[1], field.right.shape[1] + 1
    words, word = scratch.words, scratch.words.reshape(-1)
    for c in range(width):
        i = r * width + c
        if start == PERTURBED:
            for l in range(n_lanes):
                y[i, l] = sites.first[slot0 + c, l]
        elif start == GIVEN or c & 1 == skipped:
            for l in range(n_lanes):
                y[i, l] = given[i] if start == GIVEN else 0
        else:
            for j in range((n_lanes + 3) >> 2):
                words[j, 0], words[j, 1], words[j, 2], words[j, 3] = site_words(draw.k0, draw.k1, START, draw.image, (draw.first_sample >> 2) + j, site0 + c, 0)
            allowed = 0
            for k in range(n_labels):
                allowed += unary[i, k] > -np.inf
            for l in range(n_lanes):
                y[i, l] = (np.uint64(word[l]) * np.uint64(allowed)) >> _U32
            if allowed < n_labels:
                for l in range(n_lanes):
                    k, left = -1, np.int64(y[i, l])
                    while left >= 0:
                        k += 1
                        left -= unary[i, k] > -np.inf
                    y[i, l] = k

@njit(forceinline=True, error_model="numpy")
def bit(flag, n):
    return np.uint8(np.uint8(flag) << np.uint8(n))

@njit(error_model="numpy")
def visit_row(field, draw, sites, scratch, y, dirty, r, slot0, site0, c0):
    first, tick, best, inverse_p, pull, safe = sites
    bounds, holder_sets, verdicts = scratch.bounds, scratch.holder_sets, scratch.verdicts
    flags, clocks, rivals, packed, lane, code = scratch.flags, scratch.clocks, scratch.rivals, scratch.packed, scratch.lane, scratch.code
    k0, k1, image, first_sample = draw
    n_lanes, n_labels = y.shape[1], field.unary.shape[1]
    height, width = field.down.shape[0] + 1, field.right.shape[1] + 1
    flags8 = flags.view(np.uint64)
    clock_words = clocks.view(np.uint32)
    stride = np.uint64(len(clocks) >> 6)
    share = np.uint64(2 if stride == 4 else 1 if stride == 8 else 0)
    near = np.empty(4, np.int64)
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
        held = safe[slot]
        for l in range(n_lanes):
            a = first[slot, l]
            agree = bit(y[n0, l] == a, 0) | bit(y[n1, l] == a, 1) | bit(y[n2, l] == a, 2) | bit(y[n3, l] == a, 3)
            keep = np.uint8((held >> np.uint16(agree)) & np.uint16(1))
            flags[l] = keep | bit(keep & np.uint8(a != y[i, l]), 1) | bit(agree, 2)
        changed = bit_mask(flags8, n_lanes, 1) & mask
        undecided = mask & ~bit_mask(flags8, n_lanes, 0)
        if changed:
            for l in range(n_lanes):
                y[i, l] ^= np.uint8(y[i, l] ^ first[slot, l]) & np.uint8(-(np.int64(flags[l] >> 1) & 1))
        if undecided:
            todo = undecided
            while todo:
                l = trailing_zeros(todo)
                lead = l >> share << share
                todo &= ~(((_ONE << (_ONE << share)) - _ONE) << lead)
                groups = _ONE
                if n_labels > 16:
                    groups = _ONE << np.uint64(y[n0, l] >> 4) | _ONE << np.uint64(y[n1, l] >> 4) | _ONE << np.uint64(y[n2, l] >> 4) | _ONE << np.uint64(y[n3, l] >> 4)
                while groups:
                    g = trailing_zeros(groups)
                    groups &= groups - _ONE
                    four = site_words(k0, k1, LAZY_CLOCK, image, (first_sample + l) >> share, site0 + c, g)
                    w = (lead * stride >> np.uint64(2)) + np.uint64(4) * g
                    clock_words[w], clock_words[w + np.uint64(1)], clock_words[w + np.uint64(2)], clock_words[w + np.uint64(3)] = four
            near[0], near[1], near[2], near[3] = n0, n1, n2, n3
            n_slow = 0
            todo = undecided
            while todo:
                l = trailing_zeros(todo)
                todo &= todo - _ONE
                j = n_slow
                n_slow += 1
                P = np.uint64(y[n0, l]) | np.uint64(y[n1, l]) << np.uint64(8) | np.uint64(y[n2, l]) << np.uint64(16) | np.uint64(y[n3, l]) << np.uint64(24)
                twice = P | P << _U32
                holders = holder_sets[zero_bytes((P ^ (twice >> _U8 & np.uint64(0xFFFFFFFF))) | (P ^ twice >> np.uint64(16)) << _U32)]
                lane[j] = l
                packed[j] = P | np.uint64(first[slot, l]) << _U32 | np.uint64(y[i, l]) << np.uint64(40)
                for n in range(4):
                    k = P >> np.uint64(8 * n) & _BYTE
                    b = 4 * np.int64(clocks[l * stride + k])
                    x = inverse_p[slot, k]
                    rivals[64 * n + j] = bounds[b] * x
                    rivals[256 + 64 * n + j] = bounds[b + 1] * x
                    rivals[512 + 64 * n + j] = pull[slot, (holders >> np.uint32(8 * n)) & np.uint32(255)]
                rivals[768 + j] = pull[slot, flags[l] >> 2]
                b = 4 * np.int64(tick[slot, l])
                rivals[832 + j] = bounds[b + 2]
                rivals[896 + j] = bounds[b + 3]
            judge(rivals, code, n_slow + 3 & -4)
            unclear = 0
            for j in range(n_slow):
                P, l = packed[j], lane[j]
                shift = np.uint64(verdicts[code[j]])
                label = P >> shift & _BYTE
                changed |= np.uint64(label != P >> np.uint64(40)) << l
                y[i, l] = label
                code[unclear], packed[unclear], lane[unclear] = code[j], P, l
                unclear += shift == np.uint64(40)
            for j in range(unclear):
                l = lane[j]
                label = settle(field, draw, sites, clocks, packed[j], code[j], i, slot, r, c, site0 + c, l, l * stride)
                changed |= np.uint64(label != y[i, l]) << l
                y[i, l] = label
        if changed:
            moved |= changed
            dirty[n0] |= changed
            dirty[n1] |= changed
            dirty[n2] |= changed
            dirty[n3] |= changed
    return moved

@njit(forceinline=True, error_model="numpy")
def judge(rivals, code, n):
    for j in range(n):
        own, slowest, quickest = rivals[768 + j], rivals[832 + j], rivals[896 + j]
        low0, high0 = (_F1 + rivals[j] * slowest) * rivals[512 + j], (_F1 + rivals[256 + j] * quickest) * rivals[512 + j]
        low1, high1 = (_F1 + rivals[64 + j] * slowest) * rivals[576 + j], (_F1 + rivals[320 + j] * quickest) * rivals[576 + j]
        low2, high2 = (_F1 + rivals[128 + j] * slowest) * rivals[640 + j], (_F1 + rivals[384 + j] * quickest) * rivals[640 + j]
        low3, high3 = (_F1 + rivals[192 + j] * slowest) * rivals[704 + j], (_F1 + rivals[448 + j] * quickest) * rivals[704 + j]
        high = high0 if high0 < high1 else high1
        high = high if high < high2 else high2
        high = high if high < high3 else high3
        bar, top = high * _UP, own * _UP
        rest = np.uint32((low0 >= top) & (low1 >= top) & (low2 >= top) & (low3 >= top))
        code[j] = (
            np.uint32(low0 < bar) | np.uint32(np.uint32(low1 < bar) << np.uint32(1)) | np.uint32(np.uint32(low2 < bar) << np.uint32(2))
            | np.uint32(np.uint32(low3 < bar) << np.uint32(3)) | np.uint32(rest << np.uint32(4)) | np.uint32(np.uint32(high <= own * _DOWN) << np.uint32(5))
        )

@njit(forceinline=True, error_model="numpy")
def settle(field, draw, sites, clocks, packed, code, i, slot, r, c, site, lane, offset):
    unary, right, down, inverse_temperature = field
    k0, k1, image, first_sample = draw
    sample = first_sample + lane
    best = sites.best[slot]
    first = packed >> _U32 & _BYTE
    log_total = math.log(sites.inverse_p[slot, best])
    winner, score, log_clock = first, -np.inf, 0.0
    for n in range(4, -1, -1):
        k = packed >> np.uint64(8 * n) & _BYTE
        weight = 0.0
        if c > 0 and packed & _BYTE == k:
            weight += right[r, c - 1]
        if c < right.shape[1] and packed >> _U8 & _BYTE == k:
            weight += right[r, c]
        if r > 0 and packed >> np.uint64(16) & _BYTE == k:
            weight += down[r - 1, c]
        if r < down.shape[0] and packed >> np.uint64(24) & _BYTE == k:
            weight += down[r, c]
        weight *= inverse_temperature
        if n == 4:
            log_clock = math.log(-math.log(refine(sites.tick[slot, lane], draw, sample, site, 0)))
            score = weight - log_clock
        elif k != first and weight - log_clock > score and unary[i, k] > -np.inf:
            log_p = (np.float64(unary[i, k]) - unary[i, best]) * inverse_temperature - log_total
            wait = math.log(-math.log(refine(clocks[offset + k], draw, sample, site, np.int64(k) + 1))) - log_p
            rival = weight - max(wait, log_clock) - math.log1p(math.exp(-abs(wait - log_clock)))
            if rival > score:
                winner, score = k, rival
    return winner

@njit(forceinline=True, error_model="numpy")
def refine(coarse, draw, sample, site, m):
    fine = pick(site_words(draw.k0, draw.k1, LAZY_FINE, draw.image, sample, site, m >> 2), m & 3)
    return (np.float64(coarse) * 2.0**24 + np.float64(fine >> np.uint32(8)) + 0.5) * 2.0**-32

@njit(nogil=True, cache=True, error_model="numpy")
def climb_potts(unary, right, down, temperature, k0, k1, first_image, first_sample, start, given, row, column, full_width, max_sweeps, labels):
    n_images, n_sites, n_lanes = labels.shape
    n_labels, height, width = unary.shape[2], down.shape[1] + 1, right.shape[2] + 1
    sweeps = np.zeros((n_images, n_lanes), np.int32)
    everyone = _ALL >> np.uint64(64 - n_lanes)
    phases = 2 * SWEEPS_PER_PASS
    ring = min(phases + 1, height)
    slots = ring * width
    sites = Sites(np.empty((slots, n_lanes), np.uint8), np.empty((slots, n_lanes), np.uint8), np.empty(slots, np.uint8), np.empty((slots, n_labels), np.float32), np.empty((slots, 17), np.float32), np.empty(slots, np.uint16))
    stride = 4 if n_labels <= 4 else 8 if n_labels <= 8 else (n_labels + 15) // 16 * 16
    scratch = Scratch(BOUNDS.copy(), HOLDERS.copy(), VERDICTS.copy(), np.empty(4), np.empty(n_labels), np.empty((16, 4), np.uint32), np.zeros(64, np.uint8), np.zeros(64 * stride, np.uint8), np.empty(960, np.float32), np.empty(64, np.uint64), np.empty(64, np.uint64), np.empty(64, np.uint32))
    dirty = np.empty(n_sites, np.uint64)
    pending = np.empty((2, height), np.bool_)
    moved = np.empty(SWEEPS_PER_PASS, np.uint64)
    for n in range(n_images):
        field = Field(unary[n], right[n], down[n], 1.0 / temperature)
        draw = Draw(k0, k1, first_image + n, first_sample)
        y = labels[n]
        dirty[:] = everyone
        pending[:] = True
        done = 0
        while True:
            moved[:] = _ZERO
            for step in range(height + phases):
                if step < height:
                    r, slot0, site0 = step, step % ring * width, np.int64(row + step) * full_width + column
                    sites.best[slot0 : slot0 + width] = UNKNOWN
                    if done == 0:
                        if start == PERTURBED:
                            describe_row(field, draw, sites, scratch, dirty, r, slot0, site0, 0, 1)
                        skipped = (row + r + column) & 1 if max_sweeps > 0 and moved[0] == everyone else 2
                        start_row(field, draw, sites, scratch, y, start, given[n] if start == GIVEN else given[0], r, slot0, site0, skipped)
                for phase in range(phases):
                    r, colour = step - 1 - phase, phase & 1
                    if r < 0 or r >= height or done + phase // 2 >= max_sweeps or not pending[colour, r]:
                        continue
                    pending[colour, r] = False
                    slot0, site0 = r % ring * width, np.int64(row + r) * full_width + column
                    c0 = (row + r + column + colour) & 1
                    if done > 0 or (phase < 2 and start != PERTURBED):
                        describe_row(field, draw, sites, scratch, dirty, r, slot0, site0, c0, 2)
                    changed = visit_row(field, draw, sites, scratch, y, dirty, r, slot0, site0, c0)
                    if changed:
                        moved[phase // 2] |= changed
                        pending[1 - colour, max(r - 1, 0) : r + 2] = True
            for s in range(SWEEPS_PER_PASS):
                for l in range(n_lanes):
                    if moved[s] >> np.uint64(l) & _ONE:
                        sweeps[n, l] = done + s + 1
            done += SWEEPS_PER_PASS
            if done >= max_sweeps or moved[SWEEPS_PER_PASS - 1] == _ZERO:
                break
    return sweeps
