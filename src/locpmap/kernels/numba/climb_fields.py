"""Numba version of `reference.climb_fields`: LocPMAP climb with error fields on a grid with Potts weights >= 0.

Every sample has its own scores, so samples climb one by one.  In the lazy noise scheme (`reference.noise`) most noise
is never computed:

- The *first* label of a site has the largest perturbed score.  It is drawn with one uniform, and without any if all
  other labels have less probability than the uniform can resolve.  Scores of a row are computed label by label, in
  loops that vectorise.
- A climb visits sites next to a change.  Only the first label and labels of neighbours can be the best.

Memory: 18 bytes per site, and the nodes of the fields.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.add_fields import nodes_of
from locpmap.kernels.numba.noise import logistic_word, pick, site_words, uniform
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM
from locpmap.kernels.reference.noise import BITS, LAZY_CLOCK, LAZY_FINE, LAZY_SITE, START, START_BITS

_INF, _0, _1 = np.float32(np.inf), np.float32(0), np.float32(1)
AT_ONCE = 128  # columns processed together
WAVES = 6  # sweeps of the wavefront
_LOG2 = math.log(2)
_UNSEEN = (BITS + 1) * _LOG2  # a label this much below the best, plus log L, never comes first


def _bounds():
    """Return the minimum and maximum of ``log(-log u)`` for every leading byte of u, (256, 2), with a margin."""
    edge = np.log(-np.log(np.clip(np.arange(257) / 256, 2.0**-33, 1 - 2.0**-33)))
    return np.stack([edge[1:] - 1e-6, edge[:-1] + 1e-6], axis=1)


BOUNDS = _bounds()


@njit(nogil=True, cache=True, error_model="numpy")
def climb_fields(climb, scores, fields, moves, labels):
    """Fill ``labels`` (n, S, R); ``scores`` are the unaries by label, (n, L, S).

    Return the number of the last sweep that changed a label, (n, R).
    """
    n_images, n_sites, n_samples = labels.shape
    height, width = climb.down.shape[1] + 1, climb.right.shape[2] + 1
    sweeps = np.zeros((n_images, n_samples), np.int32)
    y, dirty = np.empty(n_sites, np.uint8), np.empty(n_sites, np.uint8)
    drawn = (np.empty(n_sites, np.uint8), np.empty(n_sites, scores.dtype), np.empty(n_sites, np.float32))
    pending = np.empty((2, height), np.uint8)
    scratch = row_scratch(scores.shape[1], 1 << fields.shift, scores.dtype)
    place = (climb.row, climb.column, climb.full_width, climb.temperature)
    for n in range(n_images):
        edges = climb.right[n if len(climb.right) > 1 else 0], climb.down[n if len(climb.down) > 1 else 0]
        factors = fields.factors[n if len(fields.factors) > 1 else 0]
        for s in range(n_samples):
            noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample + s)
            top, left = climb.row + moves.phases[n, s, 0], climb.column + moves.phases[n, s, 1]
            nodes = nodes_of(factors, fields.shift, top, left, height, width, noise[:2], noise[2], noise[3])
            terms = (climb.unary[n], moves.offsets[n, s], nodes, fields.shift, top, left, np.float32(fields.unit))
            site = (y, dirty, pending, drawn, terms, noise, place, edges)
            given = climb.given[n] if climb.start == GIVEN else y
            sweeps[n, s] = ascend(site, scores[n], scratch, climb.start, given, climb.max_sweeps)
            for i in range(n_sites):
                labels[n, i, s] = y[i]
    return sweeps


@njit(error_model="numpy")
def row_scratch(n_labels, cell, dtype):
    """Allocate the arrays of a part of a row: field, scores, second best scores, best labels and sums."""
    scores, second = np.empty((n_labels, AT_ONCE), dtype), np.empty(AT_ONCE, dtype)
    return (
        np.empty(AT_ONCE + 2 * cell, np.int32),
        scores,
        second,
        np.empty(AT_ONCE, np.int32),
        np.empty(AT_ONCE, np.float32),
    )


@njit(error_model="numpy")
def ascend(site, by_label, scratch, start, given, max_sweeps):
    """Draw first labels and climb to a local maximum; return the number of the last sweep that changed a label.

    The first sweeps follow each other down the image in a wavefront while its rows are in the cache: when a row is
    drawn, the first sweep visits the row above, and each later sweep the rows above that.
    """
    y, dirty, pending, drawn, terms, noise, place, _ = site
    height, width = pending.shape[1], len(y) // pending.shape[1]
    rivals = (np.empty(4, np.int64), np.empty(4), np.empty(4), np.empty(4))  # labels, extra weights, bounds
    dirty[:] = 0
    pending[:] = 0
    last = 0
    for step in range(height + 2 * WAVES):
        if step < height:
            draw_row(drawn, by_label, terms, noise, place, scratch, step, width)
            for i in range(step * width, (step + 1) * width):
                y[i] = drawn[0][i] if start == PERTURBED else given[i]
            if start == RANDOM:
                random_row(y, terms, noise, place, step, width)
        for phase in range(2 * WAVES):
            r, sweep = step - 1 - phase, phase // 2 + 1
            due = 0 <= r < height and sweep <= max_sweeps and (sweep == 1 or pending[phase & 1, r])
            if due and visit_row(site, rivals, r, phase & 1, sweep == 1):
                last = max(last, sweep)
    sweep = WAVES
    while last == sweep and sweep < max_sweeps:
        sweep += 1
        for colour in range(2):
            for r in range(height):
                if pending[colour, r] and visit_row(site, rivals, r, colour, False):
                    last = sweep
    return last


@njit(error_model="numpy")
def draw_row(drawn, by_label, terms, noise, place, scratch, r, width):
    """Fill the first label, largest score and sum of ``exp((score - largest) / temperature)`` of a row's sites."""
    first, peak, total = drawn
    _, offsets, nodes, shift, top, left, unit = terms
    row, column, full_width, temperature = place
    field, scores, second, label, sums = scratch
    n_labels = len(offsets)
    reach = temperature * (_UNSEEN + math.log(n_labels))
    inverse = np.float32(1 / temperature) if temperature > 0 else _1
    for c0 in range(0, width, AT_ONCE):
        count, here = min(AT_ONCE, width - c0), r * width + c0
        best = peak[here : here + count]
        best[:], second[:], label[:], sums[:] = -_INF, -_INF, 0, 0
        for k in range(n_labels):
            if offsets[k] > -_INF:
                begin = spread(field, nodes[k], r, c0, count, shift, top, left)
                values = field[begin : begin + count]
                follow(scores[k], best, second, label, by_label[k, here : here + count], values, offsets[k], unit, k)
        n_open = 0
        for c in range(count):
            n_open += second[c] >= best[c] - reach
        if n_open and temperature > 0:
            for k in range(n_labels):
                if offsets[k] > -_INF:
                    accumulate(sums, scores[k], best, inverse)
        for c in range(count):
            first[here + c], total[here + c] = label[c], _1
            if temperature > 0 and second[c] >= best[c] - reach:
                total[here + c] = sums[c]
                number = np.int64(row + r) * full_width + column + c0 + c
                first[here + c] = invert(scores, offsets, c, label[c], best[c], sums[c], noise, number, temperature)


@njit(error_model="numpy")
def follow(mine, best, second, label, unaries, values, offset, unit, k):
    """Compute the scores of label k in a part of a row; update the best label, its score and the second best score."""
    k = np.int32(k)
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
def accumulate(sums, scores, best, inverse):
    """Add ``exp((score - best) · inverse)``, to about 1e-7, to the sums; without branches, so that it vectorises."""
    for c in range(len(best)):
        x = max(np.float32(scores[c] - best[c]) * inverse, np.float32(-87))
        n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
        x = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
        series = np.float32(1 / 720) * x + np.float32(1 / 120)
        series = series * x + np.float32(1 / 24)
        series = series * x + np.float32(1 / 6)
        series = series * x + np.float32(0.5)
        series = (series * x + _1) * x + _1
        sums[c] += series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(error_model="numpy")
def invert(scores, offsets, c, best, peak, total, noise, site, temperature):
    """Return the first label at column c: the label whose part of the cumulative distribution holds the uniform."""
    k0, k1, image, sample = noise
    if len(scores) == 2:
        u = (np.float64(logistic_word(k0, k1, image, sample, site)) + 0.5) * 2.0**-32
        difference = np.float64(scores[1, c]) - scores[0, c]
        return difference > temperature * math.log(u / (1 - u))
    u = uniform(pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3)) * total
    cumulative, last = 1.0, best
    for k in range(len(scores)):
        if u <= cumulative:
            break
        if k != best and offsets[k] > -_INF:
            cumulative += math.exp((np.float64(scores[k, c]) - peak) / temperature)
            last = k
    return last


@njit(error_model="numpy")
def spread(field, nodes, r, c, count, shift, top, left):
    """Interpolate a label's nodes in row r from the cell of column c; return the position of that column."""
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    x = ((left + c) >> shift) - (left >> shift)
    begin = (left + c) & (cell - 1)
    upper, lower = nodes[y], nodes[y + 1]
    first = (cell - down) * upper[x] + down * lower[x]
    for at in range(0, begin + count, cell):
        x += 1
        second = (cell - down) * upper[x] + down * lower[x]
        value, step = cell * first, second - first
        for j in range(cell):
            field[at + j] = value + np.int32(j) * step
        first = second
    return begin


@njit(error_model="numpy")
def perturbed(k, r, c, i, drawn, terms, noise, place):
    """Return the perturbed score of label k at site i, relative to the sum over labels."""
    first, peak, total = drawn
    row, column, full_width, temperature = place
    site = np.int64(row + r) * full_width + column + c
    k0, k1, image, sample = noise
    score = score_of(k, r, c, i, terms)
    if score == -np.inf or temperature == 0:
        return np.float64(score)
    if len(terms[1]) == 2:
        if k == 0:
            return np.float64(score)
        u = (np.float64(logistic_word(k0, k1, image, sample, site)) + 0.5) * 2.0**-32
        return np.float64(score) - temperature * math.log(u / (1 - u))
    tick = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3) & np.uint32(255)
    clock = math.log(-math.log(joined(tick, 0, noise, site)))
    if k != first[i]:
        coarse = wait_byte(k, len(terms[1]), noise, site)
        log_p = (np.float64(score) - peak[i]) / temperature - math.log(total[i])
        wait = math.log(-math.log(joined(coarse, k + 1, noise, site))) - log_p
        clock = max(wait, clock) + math.log1p(math.exp(-abs(wait - clock)))
    return -temperature * clock


@njit(error_model="numpy")
def wait_byte(k, n_labels, noise, site):
    """Return the leading byte of the wait of label k, as in `reference.lazy_bytes`."""
    k0, k1, image, sample = noise
    bits = 2 if n_labels <= 4 else 3 if n_labels <= 8 else 4  # a sample has 2^bits bytes of a call
    byte = ((sample & ((16 >> bits) - 1)) << bits) + (k & ((1 << bits) - 1))
    word = pick(site_words(k0, k1, LAZY_CLOCK, image, sample >> (4 - bits), site, k >> bits), byte >> 2)
    return word >> np.uint32(8 * (byte & 3)) & np.uint32(255)


@njit(error_model="numpy")
def joined(coarse, m, noise, site):
    """Return the uniform of a leading byte and the 24 bits of fine noise number m."""
    fine = pick(site_words(noise[0], noise[1], LAZY_FINE, noise[2], noise[3], site, m >> 2), m & 3)
    return (np.float64(coarse) * 2.0**24 + np.float64(fine >> np.uint32(8)) + 0.5) * 2.0**-32


@njit(error_model="numpy")
def score_of(k, r, c, i, terms):
    """Return the score of label k with its field, in row r and column c."""
    unary, offsets, nodes, shift, top, left, unit = terms
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    x, along = ((left + c) >> shift) - (left >> shift), np.int32((left + c) & (cell - 1))
    upper = (cell - along) * nodes[k, y, x] + along * nodes[k, y, x + 1]
    lower = (cell - along) * nodes[k, y + 1, x] + along * nodes[k, y + 1, x + 1]
    return unary[i, k] + (offsets[k] + np.float32((cell - down) * upper + down * lower) * unit)


@njit(error_model="numpy")
def random_row(y, terms, noise, place, r, width):
    """Fill row r of ``y`` with a uniformly random allowed label per site."""
    unary, offsets = terms[0], terms[1]
    k0, k1, image, sample = noise
    row, column, full_width, _ = place
    for i in range(r * width, (r + 1) * width):
        site = np.int64(row + r) * full_width + column + i % width
        allowed = 0
        for k in range(len(offsets)):
            allowed += unary[i, k] + offsets[k] > -np.inf
        if len(offsets) == 2:
            bits = pick(site_words(k0, k1, START_BITS, image, sample >> 7, site, 0), (sample >> 5) & 3)
            nth = np.int64((bits >> np.uint32(sample & 31)) & np.uint32(1)) if allowed == 2 else 0
        else:
            word = np.uint64(pick(site_words(k0, k1, START, image, sample >> 2, site, 0), sample & 3))
            nth = np.int64((word * np.uint64(allowed)) >> np.uint64(32))
        label = -1
        while nth >= 0:
            label += 1
            nth -= unary[i, label] + offsets[label] > -np.inf
        y[i] = label


@njit(error_model="numpy")
def visit_row(site, rivals, r, colour, everyone):
    """Give the sites of one colour in row r their best labels: all of them, or the dirty ones; return any change."""
    y, dirty, pending, drawn, terms, noise, place, edges = site
    right, down = edges
    height, width = pending.shape[1], right.shape[1] + 1
    pending[colour, r] = 0
    moved = False
    for c in range((place[0] + place[1] + r + colour) & 1, width, 2):
        i = r * width + c
        if not everyone and not dirty[i]:
            continue
        dirty[i] = 0
        own, a = y[i], drawn[0][i]
        # Labels and weights of the neighbours; a missing one has the first label and no weight.
        y0, w0 = (y[i - 1], right[r, c - 1]) if c > 0 else (a, _0)
        y1, w1 = (y[i + 1], right[r, c]) if c < width - 1 else (a, _0)
        y2, w2 = (y[i - width], down[r - 1, c]) if r > 0 else (a, _0)
        y3, w3 = (y[i + width], down[r, c]) if r < height - 1 else (a, _0)
        n_rivals = find_rivals(rivals, a, y0, y1, y2, y3, w0, w1, w2, w3)
        label = a if n_rivals == 0 else best_label(rivals, n_rivals, own, r, c, i, drawn, terms, noise, place)
        if label != own:
            y[i] = label
            moved = True
            dirty[i - (c > 0)] = 1
            dirty[i + (c < width - 1)] = 1
            dirty[i - width * (r > 0)] = 1
            dirty[i + width * (r < height - 1)] = 1
            dirty[i] = 0
    if moved:
        pending[1 - colour, max(r - 1, 0) : r + 2] = 1
    return moved


@njit(forceinline=True, error_model="numpy")
def find_rivals(rivals, a, y0, y1, y2, y3, w0, w1, w2, w3):
    """List the labels of neighbours with more support than the first label, which alone can beat it."""
    if y0 == a and y1 == a and y2 == a and y3 == a:
        return 0
    support = w0 * (y0 == a) + w1 * (y1 == a) + w2 * (y2 == a) + w3 * (y3 == a)
    e01, e02, e03, e12, e13, e23 = y0 == y1, y0 == y2, y0 == y3, y1 == y2, y1 == y3, y2 == y3
    s0 = w0 + w1 * e01 + w2 * e02 + w3 * e03
    s1 = w1 + w2 * e12 + w3 * e13
    s2 = w2 + w3 * e23
    n = 0
    if y0 != a and s0 > support:
        n = add_rival(rivals, n, y0, s0 - support)
    if y1 != a and not e01 and s1 > support:
        n = add_rival(rivals, n, y1, s1 - support)
    if y2 != a and not (e02 or e12) and s2 > support:
        n = add_rival(rivals, n, y2, s2 - support)
    if y3 != a and not (e03 or e13 or e23) and w3 > support:
        n = add_rival(rivals, n, y3, w3 - support)
    return n


@njit(forceinline=True, error_model="numpy")
def add_rival(rivals, n, label, extra):
    """Append a rival with its support beyond that of the first label."""
    rivals[0][n], rivals[1][n] = label, extra
    return n + 1


@njit(error_model="numpy")
def best_label(rivals, n_rivals, own, r, c, i, drawn, terms, noise, place):
    """Return the best of the first label and its rivals; the current label if it is one of several.

    Eight bits of the noise bound the scores of the rivals relative to the first label, whose score is 0.  They decide
    in nearly all cases.
    """
    who, extra, low, high = rivals
    bound_rivals(rivals, n_rivals, r, c, i, drawn, terms, noise, place)
    a = drawn[0][i]
    best, floor = np.int64(a), 0.0
    for j in range(n_rivals):
        if low[j] > floor:
            best, floor = who[j], low[j]
    clear = True
    for j in range(n_rivals):
        clear &= who[j] == best or high[j] < floor
    if clear:
        return best
    best, score = np.int64(a), perturbed(a, r, c, i, drawn, terms, noise, place)
    for j in range(n_rivals):
        if high[j] >= floor:
            k, total = who[j], perturbed(who[j], r, c, i, drawn, terms, noise, place) + extra[j]
            if total > score or (total == score and (k == own or (k < best and best != own))):
                best, score = k, total
    return best


@njit(error_model="numpy")
def bound_rivals(rivals, n_rivals, r, c, i, drawn, terms, noise, place):
    """Fill bounds of the rivals' scores, divided by the temperature, minus that of the first label.

    In the terms of `reference.noise`, this difference is ``extra / temperature - log(1 + exp(wait - log p - clock))``
    with the logarithms of the rival's wait and of the first label's clock.
    """
    who, extra, low, high = rivals
    row, column, full_width, temperature = place
    k0, k1, image, sample = noise
    n_labels = len(terms[1])
    if n_labels == 2 or temperature == 0:
        low[:n_rivals], high[:n_rivals] = -np.inf, np.inf
        return
    site = np.int64(row + r) * full_width + column + c
    log_total = math.log(drawn[2][i])
    tick = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3) & np.uint32(255)
    for j in range(n_rivals):
        score = score_of(who[j], r, c, i, terms)
        if score == -np.inf:
            low[j], high[j] = -np.inf, -np.inf
            continue
        log_p = (np.float64(score) - drawn[1][i]) / temperature - log_total
        lead, wait = extra[j] / temperature, wait_byte(who[j], n_labels, noise, site)
        # max(x, 0) <= log(1 + exp(x)) <= max(x, 0) + log 2
        low[j] = lead - max(BOUNDS[wait, 1] - BOUNDS[tick, 0] - log_p, 0.0) - _LOG2
        high[j] = lead - max(BOUNDS[wait, 0] - BOUNDS[tick, 1] - log_p, 0.0)
