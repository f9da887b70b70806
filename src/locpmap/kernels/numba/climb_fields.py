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

import numpy as np
from numba import njit

from locpmap.kernels.numba.add_fields import nodes_of
from locpmap.kernels.numba.field_rows import draw_row, random_row, row_scratch
from locpmap.kernels.numba.field_scores import bound_rivals, perturbed
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM

_0 = np.float32(0)
WAVES = 6  # sweeps of the wavefront


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
            terms = (scores[n], moves.offsets[n, s], nodes, fields.shift, top, left, np.float32(fields.unit))
            site = (y, dirty, pending, drawn, terms, noise, place, edges)
            given = climb.given[n] if climb.start == GIVEN else y
            sweeps[n, s] = ascend(site, scratch, climb.start, given, climb.max_sweeps)
            for i in range(n_sites):
                labels[n, i, s] = y[i]
    return sweeps


@njit(error_model="numpy")
def ascend(site, scratch, start, given, max_sweeps):
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
            draw_row(drawn, terms, noise, place, scratch, step, width)
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
