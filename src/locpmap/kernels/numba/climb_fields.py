"""Numba version of `reference.climb_fields`: LocPMAP climb with error fields on a grid with Potts weights >= 0.

Every sample has its own scores, so samples climb one by one.  In the lazy noise scheme (`reference.noise`) most noise
is never computed:

- The *first* label of a site has the largest perturbed score.  Scores of a row are computed label by label, in loops
  that vectorise.  In most cases the uniform of the site and the lead of the best label over the second prove that
  the best label is the first; only otherwise is the distribution over labels computed.
- A climb visits sites next to a change.  Only the first label and labels of neighbours can be the best.

Memory: 27 bytes per site, the scores of 13 rows, and the nodes of the fields.
"""

import numpy as np

from locpmap.kernels.numba.add_fields import nodes_of
from locpmap.kernels.numba.compiling import inlined, inner, kernel
from locpmap.kernels.numba.field_rows import (
    draw_row,
    random_row,
    row_scratch,
    safe_gaps,
    score_row,
    site_noise,
)
from locpmap.kernels.numba.field_scores import best_label, leader
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM

_0 = np.float32(0)
WAVES = 6  # sweeps of the wavefront
RING = 2 * WAVES + 1  # rows whose scores are kept


def climb_fields(climb, scores, fields, moves, labels):
    """Fill ``labels`` (n, S, R); ``scores`` are the unaries by row and label, (n, H, L, W).

    Return the number of the last sweep that changed a label, (n, R).
    """
    n_images, n_sites, n_samples = labels.shape
    height, n_labels, width = scores.shape[1:]
    sweeps = np.zeros((n_images, n_samples), np.int32)
    y, dirty, pending = np.empty(n_sites, np.uint8), np.empty(n_sites, np.uint8), np.empty((2, height), np.uint8)
    gaps, words = safe_gaps(n_labels, climb.temperature), np.empty((4, n_sites), np.uint32)
    drawn = (np.empty(n_sites, np.uint8), np.empty(n_sites, scores.dtype), np.empty(n_sites, np.float32), words, gaps)
    kept = np.empty((min(RING, height), n_labels, width), scores.dtype)
    columns = np.empty(width, np.int64)  # of marked sites
    rivals = (columns, np.empty(4, np.int64), np.empty(4), np.empty(4), np.empty(4))  # labels, extra weights, bounds
    scratch = row_scratch(n_labels, width, 1 << fields.shift, scores.dtype)
    climb_images(climb, scores, fields, moves, labels, sweeps, (y, dirty, pending, drawn, kept), scratch, rivals)
    return sweeps


@kernel
def climb_images(climb, scores, fields, moves, labels, sweeps, state, scratch, rivals):
    """Climb on every image, sample by sample."""
    n_images, n_sites, n_samples = labels.shape
    height, _, width = scores.shape[1:]
    y, dirty, pending, drawn, kept = state
    words = drawn[3]
    place = (climb.row, climb.column, climb.full_width, climb.temperature)
    for n in range(n_images):
        edges = climb.right[n if len(climb.right) > 1 else 0], climb.down[n if len(climb.down) > 1 else 0]
        factors = fields.factors[n if len(fields.factors) > 1 else 0]
        for s in range(n_samples):
            noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample + s)
            if climb.temperature > 0 and (s == 0 or noise[3] & 3 == 0):
                site_noise(words, noise, place, width)
            top, left = climb.row + moves.phases[n, s, 0], climb.column + moves.phases[n, s, 1]
            nodes = nodes_of(factors, fields.shift, top, left, height, width, noise[:2], noise[2], noise[3])
            terms = (scores[n], moves.offsets[n, s], nodes, fields.shift, top, left, np.float32(fields.unit))
            site = (y, dirty, pending, drawn, kept, noise, place, edges)
            given = climb.given[n] if climb.start == GIVEN else y
            sweeps[n, s] = ascend(site, terms, scratch, rivals, climb.start, given, climb.max_sweeps)
            for i in range(n_sites):
                labels[n, i, s] = y[i]


@inner
def ascend(site, terms, scratch, rivals, start, given, max_sweeps):
    """Draw first labels and climb to a local maximum; return the number of the last sweep that changed a label.

    The first sweeps move down the image as a wavefront, so that its rows stay in the cache.  While a row is drawn, the
    first sweep visits the two rows above it, the second sweep the two rows above those, and so on.
    """
    y, dirty, pending, drawn, kept, noise, place, _ = site
    height, width = pending.shape[1], len(y) // pending.shape[1]
    dirty[:] = 1
    pending[:] = 1
    last = 0
    for step in range(height + 2 * WAVES):
        if step < height:
            draw_row(drawn, kept[step % len(kept)], terms, noise, place, scratch, step)
            for i in range(step * width, (step + 1) * width):
                y[i] = drawn[0][i] if start == PERTURBED else given[i]
            if start == RANDOM:
                random_row(y, terms, noise, place, step, width)
        if start == PERTURBED and 0 < step <= height:
            mark_row(y, dirty, step - 1, width)
        for phase in range(2 * WAVES):
            r, sweep = step - 1 - phase, phase // 2 + 1
            due = 0 <= r < height and sweep <= max_sweeps and pending[phase & 1, r]
            if due and visit_row(site, rivals, r, phase & 1):
                last = max(last, sweep)
    sweep = WAVES
    while last == sweep and sweep < max_sweeps:
        sweep += 1
        for colour in range(2):
            for r in range(height):
                if pending[colour, r]:
                    score_row(kept[r % len(kept)], drawn[1][r * width : (r + 1) * width], terms, scratch[0], r)
                    if visit_row(site, rivals, r, colour):
                        last = sweep
    return last


@inner
def mark_row(y, dirty, r, width):
    """Mark the sites of row r that start with their first label and have a neighbour with another one."""
    begin, stop = r * width, (r + 1) * width
    mine, marks = y[begin:stop], dirty[begin:stop]
    above = y[begin - width : begin] if r > 0 else mine
    below = y[stop : stop + width] if stop < len(y) else mine
    for c in range(width):
        marks[c] = (mine[c] ^ above[c]) | (mine[c] ^ below[c])
    for c in range(width - 1):
        marks[c] |= mine[c] ^ mine[c + 1]
    for c in range(1, width):
        marks[c] |= mine[c] ^ mine[c - 1]


@inner
def visit_row(site, rivals, r, colour):
    """Give the marked sites of one colour in row r their best labels; return whether one changed."""
    y, dirty, pending, (first, peak, lead, words, _), kept, noise, place, (right, down) = site
    columns, who, extra, low, high = rivals
    scores, number = kept[r % len(kept)], np.int64(place[0] + r) * place[2] + place[1]
    height, width = pending.shape[1], right.shape[1] + 1
    tick = words[noise[3] & 3]
    pending[colour, r] = 0
    moved, count = False, 0
    marks = dirty[r * width : (r + 1) * width]
    for c in range((place[0] + place[1] + r + colour) & 1, width, 2):
        columns[count] = c
        count += marks[c] > 0
    for c in columns[:count]:
        i = r * width + c
        dirty[i] = 0
        own, a = y[i], first[i]
        # Labels and weights of the neighbours; a missing one has the first label and no weight.
        y0, w0 = (y[i - 1], right[r, c - 1]) if c > 0 else (a, _0)
        y1, w1 = (y[i + 1], right[r, c]) if c < width - 1 else (a, _0)
        y2, w2 = (y[i - width], down[r - 1, c]) if r > 0 else (a, _0)
        y3, w3 = (y[i + width], down[r, c]) if r < height - 1 else (a, _0)
        n = find_rivals(who, extra, a, y0, y1, y2, y3, w0, w1, w2, w3) if place[3] > 0 else 0
        label = np.int64(a) if place[3] > 0 else steepest(own, a, y0, y1, y2, y3, w0, w1, w2, w3, scores, c)
        if n > 0:
            here = (peak[i], tick[i], noise, number + c, place[3])
            label = leader(who, extra, low, high, n, a, scores, c, lead[i], *here)
            if label < 0:
                label = best_label(who, extra, high, n, a, own, scores, c, *here)
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


@inner
def steepest(own, a, y0, y1, y2, y3, w0, w1, w2, w3, scores, c):
    """Return the best label without noise: own if it is one of several, else the smallest."""
    best, top = np.int64(own), -np.inf
    for k in (own, a, y0, y1, y2, y3):
        support = w0 * np.float64(y0 == k) + w1 * (y1 == k) + w2 * (y2 == k) + w3 * (y3 == k)
        total = np.float64(scores[k, c]) + support
        if total > top or (total == top and best != own and k < best):
            best, top = np.int64(k), total
    return best


@inlined
def find_rivals(who, extra, a, y0, y1, y2, y3, w0, w1, w2, w3):
    """List the labels that can beat the first label: labels of neighbours with more support than it has."""
    if y0 == a and y1 == a and y2 == a and y3 == a:
        return 0
    support = w0 * (y0 == a) + w1 * (y1 == a) + w2 * (y2 == a) + w3 * (y3 == a)
    e01, e02, e03, e12, e13, e23 = y0 == y1, y0 == y2, y0 == y3, y1 == y2, y1 == y3, y2 == y3
    supports = (w0 + w1 * e01 + w2 * e02 + w3 * e03, w1 + w2 * e12 + w3 * e13, w2 + w3 * e23, w3)
    n = 0
    who[n], extra[n] = y0, supports[0] - support
    n += y0 != a and supports[0] > support
    who[n], extra[n] = y1, supports[1] - support
    n += y1 != a and not e01 and supports[1] > support
    who[n], extra[n] = y2, supports[2] - support
    n += y2 != a and not (e02 or e12) and supports[2] > support
    who[n], extra[n] = y3, supports[3] - support
    n += y3 != a and not (e03 or e13 or e23) and supports[3] > support
    return n
