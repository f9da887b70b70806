"""Numba version of `reference.climb_volume`: LocPMAP climb on a volume with Potts weights >= 0 and lazy noise.

Up to 8 samples climb together, one *lane* per sample.  They share the exponentials of a site's scores and the calls of
Philox.  A byte per site marks the lanes in which a neighbour changed; only these are visited.

Sweeps follow each other through the volume as a wavefront of planes: while plane z starts, the first colour of the
first sweep visits plane z - 1, the next colour plane z - 2, and so on.  First labels are kept for the planes of the
wavefront only.  Memory: a byte of marks per site and, for each of up to 17 planes, 25 to 90 bytes per site.
"""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.volume_contest import contest
from locpmap.kernels.numba.volume_rows import (
    FEW,
    GROUP,
    LANES,
    add_support,
    describe_row,
    link_row,
    random_row,
    row_arrays,
    with_all_steps,
)
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM

_ONE = np.uint8(1)


def climb_volume(climb, labels):
    """Fill ``labels`` (n, S, R); return the number of the last sweep that changed a label, (n, R)."""
    if labels.shape[2] % GROUP:  # vectors read a multiple of their length
        padded = np.empty((*labels.shape[:2], -(-labels.shape[2] // GROUP) * GROUP), np.uint8)
        sweeps = climb_volume(climb, padded)
        labels[:] = padded[:, :, : labels.shape[2]]
        return sweeps[:, : labels.shape[2]]
    depth, height, width = climb.links.shape
    n_labels, lanes = climb.unary.shape[2], min(LANES, labels.shape[2])
    n_sweeps = 4 if len(climb.links.steps) == 3 else 2  # of a wavefront
    n_colours = 2 if len(climb.links.steps) == 3 else 8
    planes = min(depth, n_sweeps * n_colours + 1)
    slots, two = planes * height * width, n_labels == 2
    sweeps, moved = np.zeros((len(labels), labels.shape[2]), np.int32), np.empty(n_sweeps, np.uint8)
    dirty, pending = np.empty(depth * height * width, np.uint8), np.empty((2, depth * height), np.bool_)
    sites = (
        np.empty((slots, lanes), np.uint8),  # first labels
        np.empty((0 if two else slots, lanes), np.uint8),  # leading bytes of their clocks
        np.empty(0 if two else slots, np.uint8),  # best labels
        np.empty(0 if two else slots),  # sums of exp(score - best score)
        np.empty((slots if two else 0, lanes)),  # thresholds of two labels
    )
    described, n_slots = np.empty(planes * height, np.bool_), 2 * len(climb.links.steps)
    most = max(n_slots, FEW) + 1
    rivals = (np.empty(most, np.int64), np.empty(most), np.empty(most), np.empty(most))
    groups = np.empty((min(n_labels, FEW), GROUP), climb.unary.dtype)
    scratch = (row_arrays(climb.links, n_labels), groups, np.zeros(n_labels), rivals, np.empty(5, np.int64))
    climb = climb._replace(links=with_all_steps(climb.links))
    climb_images(climb, n_colours, labels, sweeps, (dirty, pending, moved, described, sites), scratch)
    return sweeps


@kernel
def climb_images(climb, n_colours, labels, sweeps, state, scratch):
    """Climb on every image, some samples at a time."""
    for n in range(len(labels)):
        for lane0 in range(0, labels.shape[2], LANES):
            lanes = min(LANES, labels.shape[2] - lane0)
            climb_lanes(climb, n_colours, n, labels[n], lane0, lanes, sweeps[n], state, scratch)


@inner
def climb_lanes(climb, n_colours, n, y, lane0, lanes, sweeps, state, scratch):
    """Climb in some lanes of image n, in passes of a few sweeps."""
    dirty, pending, moved, described, _ = state
    depth, height, _ = climb.links.shape
    plane, row, column = climb.corner
    ring, phases = len(described) // height, n_colours * len(moved)
    everyone = np.uint8((1 << lanes) - 1)
    dirty[:] = everyone
    pending[:] = True
    done = 0
    while True:
        moved[:] = 0
        for step in range(depth + phases):
            if step < depth:
                described[step % ring * height : (step % ring + 1) * height] = False
                if done == 0:
                    start_plane(climb, n_colours, n, y, lane0, lanes, state, scratch, step, moved[0] == everyone)
            for phase in range(phases):
                z, colour = step - 1 - phase, phase % n_colours
                if z < 0 or z >= depth or done + phase // n_colours >= climb.max_sweeps:
                    continue
                if n_colours == 8 and (plane + z) & 1 != colour >> 2:
                    continue
                for r in range(height):
                    if n_colours == 8 and (row + r) & 1 != colour >> 1 & 1:
                        continue
                    parity = (colour + column + (plane + z + row + r if n_colours == 2 else 0)) & 1
                    if not pending[parity, z * height + r]:
                        continue
                    pending[parity, z * height + r] = False
                    changed = visit_row(climb, n, y, lane0, lanes, state, scratch, z, r, parity)
                    if changed:
                        moved[phase // n_colours] |= changed
                        pending[1 - parity, z * height + r] = True
                        for other_z in range(max(z - 1, 0), min(z + 2, depth)):
                            for other_r in range(max(r - 1, 0), min(r + 2, height)):
                                if other_z != z or other_r != r:
                                    pending[:, other_z * height + other_r] = True
        for s in range(len(moved)):
            for lane in range(lanes):
                if moved[s] >> lane & 1:
                    sweeps[lane0 + lane] = done + s + 1
        done += len(moved)
        if done >= climb.max_sweeps or moved[-1] == 0:
            break


@inner
def start_plane(climb, n_colours, n, y, lane0, lanes, state, scratch, z, counted):
    """Write the start labels of plane z.

    Random ones of the first colour are drawn only until every lane is known to have changed in the first sweep
    (``counted``): the first visit overwrites them.
    """
    first = state[4][0]
    _, height, width = climb.links.shape
    plane, row, column = climb.corner
    for r in range(height):
        begin, site0, slot0 = place_row(climb, state, z, r)
        if climb.start == RANDOM:
            noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample + lane0)
            skipped = 2
            if counted and (n_colours == 2 or ((plane + z) & 1 == 0 and (row + r) & 1 == 0)):
                skipped = (column + (plane + z + row + r if n_colours == 2 else 0)) & 1
            random_row(y, climb.unary[n], noise, begin, site0, width, lane0, lanes, skipped)
            continue
        if climb.start == PERTURBED:
            describe(climb, n, lane0, lanes, state, scratch, z, r)
        for x in range(width):
            for lane in range(lanes):
                y[begin + x, lane0 + lane] = (
                    climb.given[n, begin + x] if climb.start == GIVEN else first[slot0 + x, lane]
                )


@inner
def place_row(climb, state, z, r):
    """Return the first site of a row, its number in the whole volume, and its first slot in the wavefront."""
    _, height, width = climb.links.shape
    ring = len(state[3]) // height
    number = ((climb.corner[0] + z) * np.int64(climb.plane_shape[0]) + climb.corner[1] + r) * climb.plane_shape[1]
    return (z * height + r) * width, number + climb.corner[2], (z % ring * height + r) * width


@inner
def describe(climb, n, lane0, lanes, state, scratch, z, r):
    """Draw the first labels of a row, if this has not been done."""
    described, sites = state[3], state[4]
    begin, site0, slot0 = place_row(climb, state, z, r)
    width = climb.links.shape[2]
    if not described[slot0 // width]:
        described[slot0 // width] = True
        noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample + lane0)
        _, scores, words = scratch[0]
        where = (begin, slot0, site0, width, lanes)
        describe_row(sites, climb.unary[n], scores, words, noise, climb.temperature, *where)


@inner
def visit_row(climb, n, y, lane0, lanes, state, scratch, z, r, parity):
    """Give the marked sites of one colour in a row their best labels; return the changed lanes."""
    dirty, (first, tick, best, total, threshold) = state[0], state[4]
    (neighbours, _, _), groups, support, rivals, call = scratch
    offset, weight, whole, _ = neighbours
    few = climb.unary.shape[2] <= FEW
    who, extra = rivals[0], rivals[1]
    unary, temperature = climb.unary[n], climb.temperature
    width, two, n_samples = climb.links.shape[2], unary.shape[1] == 2, y.shape[1]
    flat, scores = y.reshape(y.size), unary.T
    describe(climb, n, lane0, lanes, state, scratch, z, r)
    begin, site0, slot0 = place_row(climb, state, z, r)
    count, _ = link_row(neighbours, climb.links, n, z, r, n_samples, False)
    moved = np.uint8(0)
    for x in range(parity, width, 2):
        i, slot = begin + x, slot0 + x
        mask = dirty[i]
        if mask == 0:
            continue
        dirty[i] = 0
        steps, pulls = offset[(x == 0) + 2 * (x == width - 1)], weight[x]
        call[4], log_total, changed = -1, np.nan, np.uint8(0)
        for lane in range(lanes):
            if few and lane % GROUP == 0:
                add_support(groups, flat, i * n_samples + lane0 + lane, steps, pulls, count)
            if not mask >> lane & 1:
                continue
            at, m = i * n_samples + lane0 + lane, 0
            own, a = flat[at], first[slot, lane]
            label = np.int64(a)
            if two:
                ahead, limit = np.float64(groups[1, lane % GROUP]) - groups[0, lane % GROUP], threshold[slot, lane]
                label = np.int64(1 if ahead > limit else 0 if ahead < limit else own)
            elif few:
                held = groups[a, lane % GROUP]
                for k in range(len(groups)):
                    who[m], extra[m] = k, groups[k, lane % GROUP] - held
                    m += groups[k, lane % GROUP] > held
            else:
                held = 0.0
                for j in range(count):
                    held += pulls[j] if flat[at + steps[j]] == a else 0.0
                if 2 * held < whole[x]:
                    m = find_rivals(who, extra, support, flat, at, steps, pulls, count, held)
            if m > 0:
                log_total = math.log(total[slot]) if math.isnan(log_total) else log_total
                noise = (climb.k0, climb.k1, climb.first_image + n, climb.first_sample + lane0 + lane)
                here = (scores, i, unary[i, best[slot]], log_total, tick[slot, lane])
                label = contest(rivals, m, a, own, *here, noise, site0 + x, temperature, call)
            if label != own:
                flat[at] = label
                changed |= np.uint8(1 << lane)
        if changed:
            moved |= changed
            for j in range(count):
                dirty[i + steps[j] // n_samples] |= changed
            dirty[i] = 0
    return moved


@inner
def find_rivals(who, extra, support, flat, at, steps, pulls, count, held):
    """List the labels of neighbours with more support than ``held``; ``support`` (L,) is 0 before and after."""
    for j in range(count):
        support[flat[at + steps[j]]] += pulls[j]
    m = 0
    for j in range(count):
        k = flat[at + steps[j]]
        who[m], extra[m] = k, support[k] - held
        m += support[k] > held
        support[k] = 0.0
    return m
