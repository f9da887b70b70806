"""Visits of the sites of a volume: each lane gets its best label given the neighbours (see `climb_volume`)."""

import math
from typing import Any, NamedTuple

import numpy as np

from locpmap.kernels.numba.bits import trailing_zeros
from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.potts_contest import BOUNDS
from locpmap.kernels.numba.vectors import (
    as_bits,
    as_flags,
    doubles,
    floats,
    ints,
    load_doubles,
    load_floats,
    load_ints,
    select,
    store,
)
from locpmap.kernels.numba.volume_contest import contest, judge, wait_words
from locpmap.kernels.numba.volume_sites import FEW, LANES, odds_room


class Scratch(NamedTuple):
    """Scratch arrays of a visit."""

    bounds: Any  # (4 · 256,) float32: the table of `potts_contest`, transposed
    odds: Any  # of the sites of a row, see `weigh_sites`
    words: Any  # (16,) uint32: random words of the lanes
    support: Any  # (L · 8,) float32: sums of the weights of the neighbours with each label, for few labels
    low: Any  # (L · 8,) float32: of `judge`
    sums: Any  # (L,) zeros
    rivals: Any  # labels, support beyond that of the first label, and bounds: see `contest`
    call: Any  # (5,) int64: a call of Philox and its number


def scratch_room(n_labels, n_slots, width):
    """Allocate scratch for rows of ``width`` sites with at most ``n_slots`` neighbours."""
    lanes = LANES * min(n_labels, FEW)
    return Scratch(
        np.ascontiguousarray(BOUNDS.reshape(256, 4).T).ravel(),
        odds_room(n_labels, (width + 1) // 2),
        np.zeros(2 * LANES, np.uint32),
        np.empty(lanes, np.float32),
        np.empty(lanes, np.float32),
        np.zeros(n_labels),
        (np.empty(n_slots, np.int64), np.empty(n_slots), np.empty(n_slots), np.empty(n_slots)),
        np.empty(5, np.int64),
    )


@inlined
def visit_two(flat, at, stride, steps, pulls, count, threshold, mask):
    """Visit a site with two labels in some lanes (bits); return the lanes that changed."""
    own, ahead = load_ints(flat, at), doubles(0.0)
    for j in range(count):
        pull = doubles(pulls[j])
        ahead += select(load_ints(flat, at + steps[j] * stride) == ints(1), pull, doubles(0.0) - pull)
    limit = load_doubles(threshold, 0)
    label = select(ahead > limit, ints(1), select(limit > ahead, ints(0), own))
    changed = as_bits(label != own) & mask
    store(flat, at, select(as_flags(changed), label, own))
    return changed


@inlined
def visit_few(flat, at, stride, steps, pulls, count, strong, place, mask, sites, scratch, draw, scores, temperature):
    """Visit a site with up to 8 labels; return the lanes that changed."""
    _, slot, site = place
    support, n_labels = scratch.support, len(scores)
    first, own = load_ints(sites.first.reshape(-1), LANES * slot), load_ints(flat, at)
    held = floats(0.0)
    for k in range(n_labels):
        mine = floats(0.0)
        for j in range(count):
            mine = select(load_ints(flat, at + steps[j] * stride) == ints(k), mine + floats(pulls[j]), mine)
        store(support, LANES * k, mine)
        held = select(first == ints(k), mine, held)
    # The first label wins unless the neighbours prefer another one.
    unclear, rivals = np.uint8(0), np.int64(0)
    for k in range(n_labels):
        more = load_floats(support, LANES * k) * floats(1 + 1e-5) > held
        prefer = as_bits(more) & as_bits(first != ints(k)) & mask
        unclear |= prefer
        rivals |= np.int64(prefer != 0) << k
    label = first
    if unclear and not strong:
        wait_words(scratch.words, draw, site, unclear, n_labels)
        tick = load_ints(sites.tick.reshape(-1), LANES * slot)
        slower = sites.inverse_p[slot]
        best, clear = judge(
            first, held, rivals, support, scratch.low, scratch.words, scratch.bounds, tick, slower, 1 / temperature
        )
        label = select(as_flags(unclear), best, first)
        unclear &= ~clear
    changed = as_bits(label != own) & mask & ~unclear
    store(flat, at, select(as_flags(changed), label, own))
    if unclear:
        changed |= visit_lanes(
            flat, at, stride, steps, pulls, count, place, unclear, sites, scratch, draw, scores, temperature
        )
    return changed


@inner
def visit_lanes(flat, at, stride, steps, pulls, count, place, mask, sites, scratch, draw, scores, temperature):
    """Visit a site with more than two labels, lane by lane; return the lanes that changed."""
    i, slot, site = place
    best, who, extra, sums = sites.best[slot], scratch.rivals[0], scratch.rivals[1], scratch.sums
    scratch.call[4], log_total, changed, rest = -1, np.nan, np.uint8(0), np.uint64(mask)
    whole = 0.0
    for j in range(count):
        whole += pulls[j]
    while rest:
        lane = np.int64(trailing_zeros(rest))
        rest &= rest - np.uint64(1)
        own, a = flat[at + lane], sites.first[slot, lane]
        held, m = 0.0, 0
        for j in range(count):
            held += pulls[j] if flat[at + lane + steps[j] * stride] == a else 0.0
        if 2 * held < whole:
            for j in range(count):
                sums[flat[at + lane + steps[j] * stride]] += pulls[j]
            for j in range(count):
                k = flat[at + lane + steps[j] * stride]
                who[m], extra[m] = k, sums[k] - held
                m += sums[k] > held
                sums[k] = 0.0
        label = np.int64(a)
        if m > 0:
            if math.isnan(log_total):
                log_total = math.log(sites.inverse_p[slot, best if len(scores) <= FEW else 0])
            k0, k1, image, sample0 = draw
            here = (scores, i, scores[best, i], log_total, sites.tick[slot, lane])
            noise = (k0, k1, image, sample0 + lane)
            label = contest(scratch.rivals, m, a, own, *here, noise, site, temperature, scratch.call)
        if label != own:
            flat[at + lane] = label
            changed |= np.uint8(np.uint8(1) << np.uint8(lane))
    return changed
