"""Numba version of `reference.climb_fields`: LocPMAP climb with error fields on a grid with Potts weights >= 0.

Every sample has its own scores, so samples climb one by one.  In the lazy noise scheme (`reference.noise`) most noise
is never computed:

- The *first* label of a site has the largest perturbed score.  It is drawn with one uniform, and without any if all
  other labels have less probability than the uniform can resolve.  Scores and probabilities of a row are computed label
  by label, in loops that vectorise.
- A climb visits sites next to a change.  Only the first label and labels of neighbours can be the best.  A label beats
  the first one only if more weight supports it; the perturbed scores of both are computed only then.

Memory: 18 bytes per site, and the nodes of the fields.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.add_fields import nodes_of
from locpmap.kernels.numba.noise import logistic_word, pick, site_words, uniform
from locpmap.kernels.perturbation import GIVEN, PERTURBED
from locpmap.kernels.reference.noise import BITS, LAZY_CLOCK, LAZY_FINE, LAZY_SITE, START, START_BITS

_INF, _0, _1 = np.float32(np.inf), np.float32(0), np.float32(1)
_UNSEEN = (BITS + 1) * math.log(2)  # a label this much below the best, plus log L, never comes first
LOSES, WINS, OPEN = range(3)


def _bounds():
    """Return the minimum and maximum of ``log(-log u)`` for every leading byte of u, (256, 2), with a margin."""
    edge = np.log(-np.log(np.clip(np.arange(257) / 256, 2.0**-33, 1 - 2.0**-33)))
    return np.stack([edge[1:] - 1e-6, edge[:-1] + 1e-6], axis=1)


BOUNDS = _bounds()
WIDEST = float(BOUNDS.max() - BOUNDS.min())


@njit(nogil=True, cache=True, error_model="numpy")
def climb_fields(climb, scores, fields, moves, labels):
    """Fill ``labels`` (n, S, R); ``scores`` are the unaries by label, (n, L, S).

    Return the number of the last sweep that changed a label, (n, R).
    """
    n_images, n_sites, n_samples = labels.shape
    height, width = climb.down.shape[1] + 1, climb.right.shape[2] + 1
    sweeps = np.zeros((n_images, n_samples), np.int32)
    y, dirty = np.empty(n_sites, np.uint8), np.empty(n_sites, np.uint8)
    first, total = np.empty(n_sites, np.uint8), np.empty(n_sites, np.float32)
    peak = np.empty(n_sites, scores.dtype)
    pending = np.empty((2, height), np.uint8)
    place = (climb.row, climb.column, climb.full_width, climb.temperature)
    for n in range(n_images):
        right, down = climb.right[n if len(climb.right) > 1 else 0], climb.down[n if len(climb.down) > 1 else 0]
        factors = fields.factors[n if len(fields.factors) > 1 else 0]
        for s in range(n_samples):
            noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample + s)
            top, left = climb.row + moves.phases[n, s, 0], climb.column + moves.phases[n, s, 1]
            nodes = nodes_of(factors, fields.shift, top, left, height, width, noise[:2], noise[2], noise[3])
            terms = (scores[n], moves.offsets[n, s], nodes, fields.shift, top, left, np.float32(fields.unit))
            drawn = (first, peak, total)
            draw_first(drawn, terms, noise, place, height, width)
            if climb.start == PERTURBED:
                y[:] = first
            elif climb.start == GIVEN:
                y[:] = climb.given[n]
            else:
                random_start(y, terms, noise, place, width)
            mark(dirty, pending, y, first, height, width, climb.row + climb.column)
            sweeps[n, s] = ascend(y, dirty, pending, drawn, terms, noise, place, right, down, climb.max_sweeps)
            for i in range(n_sites):
                labels[n, i, s] = y[i]
    return sweeps


@njit(error_model="numpy")
def draw_first(drawn, terms, noise, place, height, width):
    """Fill first labels, the largest score of every site, and the sum of ``exp((score - largest) / temperature)``."""
    first, peak, total = drawn
    scores, offsets, nodes, shift, top, left, unit = terms
    row, column, full_width, temperature = place
    n_labels, cell = scores.shape[0], 1 << shift
    field = np.empty(nodes.shape[2] * cell, np.int32)
    rows, powers = np.empty((n_labels, width), scores.dtype), np.empty((n_labels, width), np.float32)
    second, label = np.empty(width, scores.dtype), np.empty(width, np.int32)
    sums = np.empty(width, np.float32)
    reach = temperature * (_UNSEEN + math.log(n_labels))
    inverse = np.float32(1 / temperature) if temperature > 0 else _INF
    begin = left & (cell - 1)
    for r in range(height):
        best = peak[r * width : (r + 1) * width]
        best[:] = -_INF
        second[:] = -_INF
        label[:] = 0
        for k in range(n_labels):
            if offsets[k] == -_INF:
                continue
            spread(field, nodes[k], r, shift, top)
            unaries, values = scores[k, r * width : (r + 1) * width], field[begin : begin + width]
            follow(rows[k], best, second, label, unaries, values, offsets[k], unit, np.int32(k))
        open_sites = 0
        for c in range(width):
            first[r * width + c] = label[c]
            open_sites += second[c] >= best[c] - reach
        if open_sites == 0 or temperature == 0:
            total[r * width : (r + 1) * width] = _1
            continue
        sums[:] = _0
        for k in range(n_labels):
            if offsets[k] > -_INF:
                accumulate(powers[k], sums, rows[k], best, inverse)
            else:
                powers[k, :] = _0
        total[r * width : (r + 1) * width] = sums
        for c in range(width):
            if second[c] >= best[c] - reach:
                site = np.int64(row + r) * full_width + column + c
                first[r * width + c] = invert(powers, c, label[c], sums[c], rows, noise, site, temperature)


@njit(error_model="numpy")
def follow(mine, best, second, label, unaries, values, offset, unit, k):
    """Compute the scores of label k along a row, and update the best label, its score and the second best score."""
    for c in range(len(unaries)):
        score = unaries[c] + (offset + np.float32(values[c]) * unit)
        mine[c] = score
        before = best[c]
        better = score > before
        lower = before if better else score
        second[c] = lower if lower > second[c] else second[c]
        label[c] = k if better else label[c]
        best[c] = score if better else before


@njit(error_model="numpy")
def accumulate(powers, sums, mine, best, inverse):
    """Compute ``exp((score - best) · inverse)`` along a row, to about 1e-7, and add it to the sums."""
    for c in range(len(mine)):
        x = max(np.float32(mine[c] - best[c]) * inverse, np.float32(-87))
        n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
        x = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
        series = np.float32(1 / 720)
        series = series * x + np.float32(1 / 120)
        series = series * x + np.float32(1 / 24)
        series = series * x + np.float32(1 / 6)
        series = series * x + np.float32(0.5)
        series = (series * x + _1) * x + _1
        power = series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
        powers[c] = power
        sums[c] += power


@njit(error_model="numpy")
def invert(powers, c, best, total, rows, noise, site, temperature):
    """Return the first label at column c: the label whose part of the cumulative distribution holds the uniform."""
    k0, k1, image, sample = noise
    if len(rows) == 2:
        u = (np.float64(logistic_word(k0, k1, image, sample, site)) + 0.5) * 2.0**-32
        return np.float64(rows[1, c]) - rows[0, c] > temperature * math.log(u / (1 - u))
    word = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3)
    u = uniform(word) * total
    if u <= 1:
        return best
    cumulative, last = 1.0, best
    for k in range(len(powers)):
        if k != best:
            cumulative += powers[k, c]
            last = k
            if u <= cumulative:
                break
    return last


@njit(error_model="numpy")
def spread(field, nodes, r, shift, top):
    """Interpolate a label's nodes along row r, from the left edge of the first cell."""
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    upper, lower = nodes[y], nodes[y + 1]
    left = (cell - down) * upper[0] + down * lower[0]
    for x in range(1, len(upper)):
        right = (cell - down) * upper[x] + down * lower[x]
        at, value, step = (x - 1) << shift, cell * left, right - left
        for j in range(cell):
            field[at + j] = value + np.int32(j) * step
        left = right


@njit(error_model="numpy")
def perturbed(k, i, at, drawn, terms, noise, place):
    """Return the perturbed score of label k at site i, relative to the sum over labels; ``at``: column and width."""
    first, peak, total = drawn
    row, column, full_width, temperature = place
    site = np.int64(row + i // at[1]) * full_width + column + at[0]
    k0, k1, image, sample = noise
    score = score_of(k, i // at[1], at[0], i, terms)
    if score == -np.inf or temperature == 0:
        return np.float64(score)
    if len(terms[0]) == 2:
        if k == 0:
            return np.float64(score)
        u = (np.float64(logistic_word(k0, k1, image, sample, site)) + 0.5) * 2.0**-32
        return np.float64(score) - temperature * math.log(u / (1 - u))
    tick = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3) & np.uint32(255)
    clock = math.log(-math.log(joined(tick, 0, noise, site)))
    if k != first[i]:
        coarse = wait_byte(k, len(terms[0]), noise, site)
        log_p = (np.float64(score) - peak[i]) / temperature - math.log(total[i])
        wait = math.log(-math.log(joined(coarse, k + 1, noise, site))) - log_p
        clock = max(wait, clock) + math.log1p(math.exp(-abs(wait - clock)))
    return -temperature * clock


@njit(error_model="numpy")
def wait_byte(k, n_labels, noise, site):
    """Return the leading byte of the wait of label k, as in `reference.lazy_bytes`."""
    k0, k1, image, sample = noise
    size = 4 if n_labels <= 4 else 8 if n_labels <= 8 else 16  # bytes per sample in a call
    byte = sample % (16 // size) * size + k % size
    word = pick(site_words(k0, k1, LAZY_CLOCK, image, sample // (16 // size), site, k // size), byte >> 2)
    return word >> np.uint32(8 * (byte & 3)) & np.uint32(255)


@njit(error_model="numpy")
def joined(coarse, m, noise, site):
    """Return the uniform of a leading byte and the 24 bits of fine noise number m."""
    fine = pick(site_words(noise[0], noise[1], LAZY_FINE, noise[2], noise[3], site, m >> 2), m & 3)
    return (np.float64(coarse) * 2.0**24 + np.float64(fine >> np.uint32(8)) + 0.5) * 2.0**-32


@njit(error_model="numpy")
def score_of(k, r, c, i, terms):
    """Return the score of label k with its field, in row r and column c."""
    scores, offsets, nodes, shift, top, left, unit = terms
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    x, along = ((left + c) >> shift) - (left >> shift), np.int32((left + c) & (cell - 1))
    upper = (cell - along) * nodes[k, y, x] + along * nodes[k, y, x + 1]
    lower = (cell - along) * nodes[k, y + 1, x] + along * nodes[k, y + 1, x + 1]
    return scores[k, i] + (offsets[k] + np.float32((cell - down) * upper + down * lower) * unit)


@njit(error_model="numpy")
def random_start(y, terms, noise, place, width):
    """Fill ``y`` with a uniformly random allowed label per site."""
    scores, offsets = terms[0], terms[1]
    k0, k1, image, sample = noise
    row, column, full_width, _ = place
    for i in range(len(y)):
        site = np.int64(row + i // width) * full_width + column + i % width
        allowed = 0
        for k in range(len(scores)):
            allowed += scores[k, i] + offsets[k] > -np.inf
        if len(scores) == 2:
            bits = pick(site_words(k0, k1, START_BITS, image, sample >> 7, site, 0), (sample >> 5) & 3)
            nth = np.int64((bits >> np.uint32(sample & 31)) & np.uint32(1)) if allowed == 2 else 0
        else:
            word = np.uint64(pick(site_words(k0, k1, START, image, sample >> 2, site, 0), sample & 3))
            nth = np.int64((word * np.uint64(allowed)) >> np.uint64(32))
        label = -1
        while nth >= 0:
            label += 1
            nth -= scores[label, i] + offsets[label] > -np.inf
        y[i] = label


@njit(error_model="numpy")
def mark(dirty, pending, y, first, height, width, parity):
    """Mark the sites that may change: those without their first label, and those with a different neighbour."""
    pending[:] = 0
    for r in range(height):
        for c in range(width):
            i = r * width + c
            differs = y[i] != first[i]
            if c > 0:
                differs |= y[i - 1] != y[i]
            if c < width - 1:
                differs |= y[i + 1] != y[i]
            if r > 0:
                differs |= y[i - width] != y[i]
            if r < height - 1:
                differs |= y[i + width] != y[i]
            dirty[i] = differs
            if differs:
                pending[(parity + r + c) & 1, r] = 1


@njit(error_model="numpy")
def ascend(y, dirty, pending, drawn, terms, noise, place, right, down, max_sweeps):
    """Climb to a local maximum; return the number of the last sweep that changed a label."""
    height, width = pending.shape[1], len(y) // pending.shape[1]
    parity, last = place[0] + place[1], 0
    around, weights = np.empty(4, np.int64), np.empty(4)
    for sweep in range(1, max_sweeps + 1):
        for colour in range(2):
            for r in range(height):
                if not pending[colour, r]:
                    continue
                pending[colour, r] = 0
                for c in range((parity + r + colour) & 1, width, 2):
                    i = r * width + c
                    if not dirty[i]:
                        continue
                    dirty[i] = 0
                    n = 0
                    if c > 0:
                        around[n], weights[n] = i - 1, right[r, c - 1]
                        n += 1
                    if c < width - 1:
                        around[n], weights[n] = i + 1, right[r, c]
                        n += 1
                    if r > 0:
                        around[n], weights[n] = i - width, down[r - 1, c]
                        n += 1
                    if r < height - 1:
                        around[n], weights[n] = i + width, down[r, c]
                        n += 1
                    label = best_label(y, around, weights, n, i, (c, width), drawn, terms, noise, place)
                    if label != y[i]:
                        y[i] = label
                        last = sweep
                        for j in range(n):
                            dirty[around[j]] = 1
                        pending[1 - colour, max(r - 1, 0) : r + 2] = 1
        if last < sweep:
            break
    return last


@njit(error_model="numpy")
def best_label(y, around, weights, n, i, at, drawn, terms, noise, place):
    """Return the best label of a site given its n neighbours; the current label if it is one of several."""
    a, support = drawn[0][i], 0.0
    for j in range(n):
        if y[around[j]] == a:
            support += weights[j]
    rival, more, n_rivals = a, 0.0, 0
    for j in range(n):
        k, earlier, weight = y[around[j]], False, 0.0
        for m in range(n):
            if y[around[m]] == k:
                weight += weights[m]
                earlier |= m < j
        # A label with less support than the first label cannot beat it.
        if k != a and weight > support and not earlier:
            rival, more = k, weight - support
            n_rivals += 1
    if n_rivals == 0:
        return a
    if n_rivals == 1:
        verdict = compare(rival, more, i, at, drawn, terms, noise, place)
        if verdict != OPEN:
            return rival if verdict == WINS else a
    best, score = a, perturbed(a, i, at, drawn, terms, noise, place) + support
    for j in range(n):
        k, weight = y[around[j]], 0.0
        for m in range(n):
            if y[around[m]] == k:
                weight += weights[m]
        if k != a and weight > support:
            total = perturbed(k, i, at, drawn, terms, noise, place) + weight
            if total > score or (total == score and (k == y[i] or (k < best and best != y[i]))):
                best, score = k, total
    return best


@njit(error_model="numpy")
def compare(k, more, i, at, drawn, terms, noise, place):
    """Compare label k, which has more support, with the first label by bounds of their noise.

    In the terms of `reference.noise`, label k wins if its log wait minus the first label's log clock is less than
    ``log p_k + log(exp(more / temperature) - 1)``.  Eight bits of both uniforms decide this in nearly all cases.
    """
    _, peak, total = drawn
    row, column, full_width, temperature = place
    k0, k1, image, sample = noise
    score = score_of(k, i // at[1], at[0], i, terms)
    if len(terms[0]) == 2 or temperature == 0 or score == -np.inf:
        return OPEN
    lead = more / temperature
    log_p = (np.float64(score) - peak[i]) / temperature - math.log(total[i])
    limit = log_p + lead + math.log1p(-math.exp(-lead))
    if limit > WIDEST:
        return WINS
    if limit < -WIDEST:
        return LOSES
    site = np.int64(row + i // at[1]) * full_width + column + at[0]
    tick = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3) & np.uint32(255)
    wait = wait_byte(k, len(terms[0]), noise, site)
    if BOUNDS[wait, 1] - BOUNDS[tick, 0] < limit:
        return WINS
    if BOUNDS[wait, 0] - BOUNDS[tick, 1] > limit:
        return LOSES
    return OPEN
