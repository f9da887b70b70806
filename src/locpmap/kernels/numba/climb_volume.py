"""Numba version of `reference.climb_volume`: LocPMAP climb on a volume with Potts weights >= 0 and lazy noise.

Up to 8 samples climb together, one *lane* per sample, in vectors (`vectors`).  They share the exponentials of a site's
scores and the calls of Philox.  A byte per site marks the lanes in which a neighbour changed; only these are visited
(`volume_visits`).

Sweeps follow each other through the volume as a wavefront of planes: while plane z starts, the first colour of the
first sweep visits plane z - 1, the next colour plane z - 2, and so on.  First labels are kept for the planes of the
wavefront only.  A site is *described* by its first visit (`volume_sites`).  Memory: a byte of marks per site and, for
each of up to 17 planes, 20 to 75 bytes per site.
"""

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.potts_layout import UNKNOWN, Draw
from locpmap.kernels.numba.potts_sites import STRONG
from locpmap.kernels.numba.volume_contest import LARGEST
from locpmap.kernels.numba.volume_rows import link_row, row_arrays, with_all_steps
from locpmap.kernels.numba.volume_sites import FEW, LANES, describe_row, room, start_row
from locpmap.kernels.numba.volume_visits import scratch_room, visit_few, visit_lanes, visit_two
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM


def climb_volume(climb, labels):
    """Fill ``labels`` (n, S, R); return the number of the last sweep that changed a label, (n, R)."""
    if labels.shape[2] % LANES:  # vectors read and write back labels behind the last one
        longer = np.empty(labels.size + LANES, np.uint8)
        sweeps = climb_flat(climb, longer[: labels.size].reshape(labels.shape))
        labels[:] = longer[: labels.size].reshape(labels.shape)
        return sweeps
    return climb_flat(climb, labels)


def climb_flat(climb, labels):
    """Climb with scratch arrays."""
    depth, height, width = climb.links.shape
    n_labels, diagonal = climb.unary.shape[2], len(climb.links.steps) > 3
    n_sweeps = 2 if diagonal else 4  # of a wavefront
    n_colours = 8 if diagonal else 2
    planes = min(depth, n_sweeps * n_colours + 1)
    sweeps, moved = np.zeros((len(labels), labels.shape[2]), np.int32), np.empty(n_sweeps, np.uint8)
    dirty, pending = np.empty(depth * height * width, np.uint8), np.empty((2, depth * height), np.bool_)
    state = dirty, pending, moved, room(planes * height * width, n_labels)
    scratch = row_arrays(climb.links), scratch_room(n_labels, 2 * len(climb.links.steps), width)
    climb = climb._replace(links=with_all_steps(climb.links))
    for n in range(len(labels)):
        for lane0 in range(0, labels.shape[2], LANES):
            lanes = min(LANES, labels.shape[2] - lane0)
            climb_lanes(climb, n_colours, n, labels[n], lane0, lanes, sweeps[n], state, scratch)
    return sweeps


@kernel
def climb_lanes(climb, n_colours, n, y, lane0, lanes, sweeps, state, scratch):
    """Climb in some lanes of image n, in passes of a few sweeps."""
    dirty, pending, moved, sites = state
    depth, height, width = climb.links.shape
    plane, row, column = climb.corner
    slots, phases = height * width, n_colours * len(moved)
    ring = len(sites.best) // slots
    draw = Draw(climb.k0, climb.k1, climb.first_image + n, climb.first_sample + lane0)
    everyone = np.uint8((1 << lanes) - 1)
    dirty[:] = everyone
    pending[:] = True
    done = 0
    while True:
        moved[:] = 0
        for step in range(depth + phases):
            if step < depth:
                sites.best[step % ring * slots : (step % ring + 1) * slots] = UNKNOWN
                if done == 0:
                    counted = moved[0] == everyone
                    start_plane(climb, n_colours, n, y, lane0, lanes, draw, dirty, sites, scratch[1], step, counted)
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
                    changed = visit_row(climb, n, y, lane0, lanes, draw, dirty, sites, scratch, z, r, parity)
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
def start_plane(climb, n_colours, n, y, lane0, lanes, draw, dirty, sites, scratch, z, counted):
    """Write the start labels of plane z.

    Random ones of the first colour are drawn only until every lane is known to have changed in the first sweep
    (``counted``): the first visit overwrites them.
    """
    _, height, width = climb.links.shape
    plane, row, column = climb.corner
    for r in range(height):
        begin, site0, slot0 = place_row(climb, sites, z, r)
        if climb.start == RANDOM:
            skipped = 2
            if counted and (n_colours == 2 or ((plane + z) & 1 == 0 and (row + r) & 1 == 0)):
                skipped = (column + (plane + z + row + r if n_colours == 2 else 0)) & 1
            start_row(y, climb.unary[n], draw, begin, site0, width, lane0, lanes, scratch.words, skipped)
            continue
        for parity in range(2 if climb.start == PERTURBED else 0):
            which = (begin, slot0, site0, width, parity)
            describe_row(sites, climb.unary[n], draw, climb.temperature, scratch, dirty, which, lanes)
        for x in range(width):
            for lane in range(lanes):
                y[begin + x, lane0 + lane] = (
                    climb.given[n, begin + x] if climb.start == GIVEN else sites.first[slot0 + x, lane]
                )


@inner
def place_row(climb, sites, z, r):
    """Return the first site of a row, its number in the whole volume, and its first slot in the wavefront."""
    _, height, width = climb.links.shape
    ring = len(sites.best) // (height * width)
    number = ((climb.corner[0] + z) * np.int64(climb.plane_shape[0]) + climb.corner[1] + r) * climb.plane_shape[1]
    return (z * height + r) * width, number + climb.corner[2], (z % ring * height + r) * width


@inner
def visit_row(climb, n, y, lane0, lanes, draw, dirty, sites, scratch, z, r, parity):
    """Give the marked sites of one colour in a row their best labels; return the changed lanes."""
    neighbours, arrays = scratch
    offset, weight, whole, _ = neighbours
    scores, temperature = climb.unary[n].T, climb.temperature
    n_labels, width, stride = len(scores), climb.links.shape[2], y.shape[1]
    flat = y.reshape(y.size)
    begin, site0, slot0 = place_row(climb, sites, z, r)
    describe_row(sites, climb.unary[n], draw, temperature, arrays, dirty, (begin, slot0, site0, width, parity), lanes)
    count, _ = link_row(neighbours, climb.links, n, z, r, False)
    moved = np.uint8(0)
    for x in range(parity, width, 2):
        i, slot = begin + x, slot0 + x
        mask = dirty[i]
        if mask == 0:
            continue
        dirty[i] = 0
        steps, pulls = offset[(x == 0) + 2 * (x == width - 1)], weight[x]
        at, place = i * stride + lane0, (i, slot, site0 + x)
        if n_labels == 2:
            changed = visit_two(flat, at, stride, steps, pulls, count, sites.threshold[slot], mask)
        elif n_labels <= FEW and whole[x] < LARGEST:
            strong = whole[x] > STRONG * temperature
            changed = visit_few(
                flat, at, stride, steps, pulls, count, strong, place, mask, sites, arrays, draw, scores, temperature
            )
        else:
            changed = visit_lanes(
                flat, at, stride, steps, pulls, count, place, mask, sites, arrays, draw, scores, temperature
            )
        if changed:
            moved |= changed
            for j in range(count):
                dirty[i + steps[j]] |= changed
            dirty[i] = 0
    return moved
