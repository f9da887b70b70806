"""LocPMAP climb for two labels and Potts weights of any sign on a 4-connected grid: 64 samples in a machine word.

Given the labels of its neighbours, a site's best label depends only on its noise.  The best label in every *state* of
the neighbours is therefore computed once, as a word with one bit per sample (a *mask*, see `bit_masks`).  A visit then
selects among the masks of the states for all samples in a few bit operations.  There are sixteen states, or five if all
weights of the image are equal and only the number of neighbours with label 1 matters.
Scratch: up to 22 words per site, 7 with equal weights.
"""

import numpy as np

from locpmap.kernels.numba.bit_masks import (
    AT_ONCE,
    compare,
    draw,
    join,
    look_closer,
    odds_alone,
    odds_by_count,
    odds_by_state,
    thresholds,
)
from locpmap.kernels.numba.compiling import allocating, inlined, inner, kernel
from locpmap.kernels.numba.noise import pick, site_words
from locpmap.kernels.perturbation import PERTURBED, RANDOM
from locpmap.kernels.reference.noise import START_BITS

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
MOST = 17  # states of a site: sixteen, and one without neighbours for the start


@kernel
def climb_bits(climb, n_samples, words):
    """Fill ``words`` (n, S) with samples from first_sample on, a multiple of 8; return the last sweeps with changes."""
    unary, right, down, start, given = climb.unary, climb.right, climb.down, climb.start, climb.given
    row, column, full_width, temperature = climb.row, climb.column, climb.full_width, climb.temperature
    n_images, n_sites = unary.shape[0], unary.shape[1]
    height, width = right.shape[1], down.shape[2]
    stride = width + 2
    lanes = _ALL >> np.uint64(64 - n_samples)
    sweeps = np.zeros((n_images, n_samples), np.int32)
    y = np.zeros((height + 2) * stride, np.uint64)  # with a border of zeros for missing neighbours
    beside, pull_beside = framed(right[0, :0], temperature, 0, 0)  # placeholders
    below, pull_below = beside, pull_beside
    space = np.empty(n_sites * MOST, np.uint64)
    odds, limits = np.ones(MOST * AT_ONCE), np.empty(MOST * AT_ONCE, np.uint64)
    leads, draws = np.empty(MOST * AT_ONCE, np.uint16), np.empty(64 * AT_ONCE, np.uint16)
    pieces, close = np.empty(MOST * 8 * AT_ONCE, np.uint16), np.empty(AT_ONCE, np.uint16)
    joined = np.empty(AT_ONCE, np.uint64)
    sites, degrees, h = np.zeros(AT_ONCE, np.int64), np.zeros(AT_ONCE, np.int64), np.zeros(AT_ONCE)
    fields, pulls = np.zeros(4 * AT_ONCE), np.ones(4 * AT_ONCE)
    moved = np.empty((2, height + 2), np.bool_)  # whether a label changed, per colour and row, in the last visit
    alike, field, pull = True, 0.0, 1.0  # if all weights of an image are equal: weight / temperature, exp(-2 ·)
    for n in range(n_images):
        noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample)
        if n == 0 or max(len(right), len(down)) > 1:
            across, along = right[n if len(right) > 1 else 0], down[n if len(down) > 1 else 0]
            alike = all_equal(across, along)
            if alike:
                field = first_weight(across, along) / temperature
                pull = np.exp(-2 * field)
            else:
                beside, pull_beside = framed(across, temperature, 0, 1)
                below, pull_below = framed(along, temperature, 1, 0)
        n_states = (5 if alike else 16) + (start == PERTURBED)
        masks = space[: n_sites * n_states].reshape(n_sites, n_states)  # the samples with label 1, per state
        for first in range(0, n_sites, AT_ONCE):
            count = min(AT_ONCE, n_sites - first)
            for j in range(count):
                r, c = (first + j) // width, (first + j) % width
                sites[j] = np.int64(row + r) * full_width + column + c
                h[j] = (np.float64(unary[n, first + j, 1]) - unary[n, first + j, 0]) / temperature
                if alike:
                    degrees[j] = (r > 0) + (r < height - 1) + (c > 0) + (c < width - 1)
                else:
                    gather(fields, j, beside, below, r, c)
                    gather(pulls, j, pull_beside, pull_below, r, c)
            if alike:
                odds_by_count(odds, h, degrees, field, pull)
            else:
                odds_by_state(odds, h, fields, pulls)
            if start == PERTURBED:
                odds_alone(odds, h, n_states - 1)
            thresholds(limits, leads, odds, n_states)
            draw(draws, noise, sites, count, n_samples)
            compare(pieces, close, draws, leads, n_states, n_samples)
            join(masks, first, pieces, joined, count, n_samples)
            for j in range(count):
                i = first + j
                if close[j]:
                    look_closer(masks[i], draws, limits, leads, noise, sites[j], j, n_samples)
                if unary[n, i, 0] == -np.inf or unary[n, i, 1] == -np.inf:
                    label = _ALL if unary[n, i, 0] == -np.inf else _ZERO
                elif start == RANDOM:
                    label = start_word(noise, sites[j])
                elif start == PERTURBED:
                    label = masks[i, n_states - 1]
                else:
                    label = _ALL if given[n, i] else _ZERO
                y[(i // width + 1) * stride + i % width + 1] = label & lanes
        moved[:] = False
        for sweep in range(1, climb.max_sweeps + 1):
            changed = _ZERO
            for colour in range(2):
                everywhere, parity = sweep == 1, row + column + colour
                changed |= half_sweep(y, masks, alike, moved, colour, everywhere, height, width, parity)
            if changed == _ZERO:
                break
            for s in range(n_samples):
                if changed >> np.uint64(s) & _ONE:
                    sweeps[n, s] = sweep
        for r in range(height):
            for c in range(width):
                words[n, r * width + c] = y[(r + 1) * stride + c + 1]
    return sweeps


@inner
def all_equal(across, along):
    """Return whether all edges of an image have the same weight."""
    weight = first_weight(across, along)
    for some in (across, along):
        for r in range(some.shape[0]):
            for c in range(some.shape[1]):
                if some[r, c] != weight:
                    return False
    return True


@inner
def first_weight(across, along):
    """Return the weight of the first edge, 0 if there is none."""
    return across[0, 0] if across.size else along[0, 0] if along.size else 0.0


@allocating
def framed(weights, temperature, above, beside):
    """Return the log-odds x added by neighbours and ``exp(-2 x)``, padded by a border of 0 and 1."""
    height, width = weights.shape
    fields = np.zeros((height + 2 * above, width + 2 * beside))
    pulls = np.ones(fields.shape)
    for r in range(height):
        for c in range(width):
            field = weights[r, c] / temperature
            fields[above + r, beside + c], pulls[above + r, beside + c] = field, np.exp(-2 * field)
    return fields, pulls


@inlined
def gather(table, j, beside, below, r, c):
    """Write the values of a site's left, right, upper and lower edges into column j."""
    table[j], table[AT_ONCE + j] = beside[r, c], beside[r, c + 1]
    table[2 * AT_ONCE + j], table[3 * AT_ONCE + j] = below[r, c], below[r + 1, c]


@inner
def start_word(noise, site):
    """Return the start bits of samples first_sample..first_sample + 64 of one site."""
    k0, k1, image, first_sample = noise
    result = _ZERO
    four = site_words(k0, k1, START_BITS, image, first_sample >> 7, site, 0)
    for part in range(3):  # 64 bits at any offset span at most three 32-bit words
        j = (first_sample >> 5) + part
        if part > 0 and j & 3 == 0:
            four = site_words(k0, k1, START_BITS, image, j >> 2, site, 0)
        bits = np.uint64(pick(four, j & 3))
        offset = 32 * part - (first_sample & 31)
        if offset < 0:
            result |= bits >> np.uint64(-offset)
        elif offset < 64:
            result |= bits << np.uint64(offset)
    return result


@inner
def half_sweep(y, masks, alike, moved, colour, everywhere, height, width, parity):
    """Visit one colour, skipping rows without changes of the other colour nearby; return the changed samples."""
    stride = width + 2
    changed = _ZERO
    for r in range(height):
        now = _ZERO
        if everywhere or moved[1 - colour, r] or moved[1 - colour, r + 1] or moved[1 - colour, r + 2]:
            for c in range((parity + r) & 1, width, 2):
                x, i = (r + 1) * stride + c + 1, r * width + c
                left, right, up, down = y[x - 1], y[x + 1], y[x - stride], y[x + stride]
                if alike:
                    new = pick_by_count(masks, i, left, right, up, down)
                else:
                    new = pick_by_state(masks, i, left, right, up, down)
                now |= new ^ y[x]
                y[x] = new
        moved[colour, r + 1] = now != _ZERO
        changed |= now
    return changed


@inlined
def pick_by_count(masks, i, left, right, up, down):
    """Select, per sample, among five masks by the number of neighbours with label 1."""
    sides, verticals = left & right, up & down
    side, vertical = left | right, up | down
    least1 = side | vertical
    least2 = sides | verticals | (side & vertical)
    least3 = (sides & vertical) | (verticals & side)
    all4 = sides & verticals
    return (
        (masks[i, 0] & ~least1)
        | (masks[i, 1] & least1 & ~least2)
        | (masks[i, 2] & least2 & ~least3)
        | (masks[i, 3] & least3 & ~all4)
        | (masks[i, 4] & all4)
    )


@inlined
def pick_by_state(masks, i, left, right, up, down):
    """Select, per sample, among sixteen masks by the neighbours' labels (left is the lowest bit)."""
    above0, above1 = pick_of_four(masks, i, 0, left, right), pick_of_four(masks, i, 4, left, right)
    below0, below1 = pick_of_four(masks, i, 8, left, right), pick_of_four(masks, i, 12, left, right)
    return either(down, either(up, below1, below0), either(up, above1, above0))


@inlined
def pick_of_four(masks, i, k, left, right):
    """Select among four masks by the labels of the left and right neighbours."""
    zero, one = either(left, masks[i, k + 1], masks[i, k]), either(left, masks[i, k + 3], masks[i, k + 2])
    return either(right, one, zero)


@inlined
def either(which, one, zero):
    """Return the bits of ``one`` where ``which`` is set, and of ``zero`` elsewhere."""
    return zero ^ ((one ^ zero) & which)
