"""Numba version of `reference.climb_potts`: LocPMAP climb on a grid with Potts weights >= 0 and lazy noise.

Up to 64 samples climb together, one *lane* per sample (`potts_layout`).  Rows are *described* (`potts_sites`: compute
probabilities, weights and first labels) and visited (`potts_contest`: choose the best labels) as a wavefront.  While
one row starts, the first sweep visits the row above, the second sweep the rows above that.  Active rows stay in the
CPU cache.  A bit per lane and site marks a changed neighbour.  Only marked sites are visited; the labels equal
those of full red-black sweeps.  Scratch: one word per site, and a few rows.
"""

import numpy as np

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.potts_contest import BOUNDS, HOLDERS, VERDICTS, visit_row
from locpmap.kernels.numba.potts_layout import UNKNOWN, Draw, Field, Scratch, Sites
from locpmap.kernels.numba.potts_sites import describe_row, start_row
from locpmap.kernels.perturbation import PERTURBED

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
SWEEPS_PER_PASS = 6  # sweeps in one wavefront


def climb_potts(climb, labels):
    """Fill ``labels`` (n, S, R) for R <= 64; return the number of the last sweep that changed a label, (n, R).

    ``first_sample`` is a multiple of 4.
    """
    n_images, n_sites, n_lanes = labels.shape
    height, width = climb.down.shape[1] + 1, climb.right.shape[2] + 1
    sweeps = np.zeros((n_images, n_lanes), np.int32)
    ring = min(2 * SWEEPS_PER_PASS + 1, height)  # rows described at a time
    sites, scratch = room(ring * width, n_lanes, climb.unary.shape[2])
    dirty = np.empty(n_sites, np.uint64)  # the lanes in which a site must be visited
    pending = np.empty((2, height), np.bool_)  # whether a row has such sites, per colour
    moved = np.empty(SWEEPS_PER_PASS, np.uint64)  # the lanes changed by each sweep
    climb_images(climb, labels, sweeps, ring, sites, scratch, (dirty, pending, moved))
    return sweeps


@kernel
def climb_images(climb, labels, sweeps, ring, sites, scratch, progress):
    """Climb on every image."""
    dirty, pending, moved = progress
    unary, right, down, start, given = climb.unary, climb.right, climb.down, climb.start, climb.given
    row, column, full_width, max_sweeps = climb.row, climb.column, climb.full_width, climb.max_sweeps
    n_images, _, n_lanes = labels.shape
    height, width = down.shape[1] + 1, right.shape[2] + 1
    everyone = _ALL >> np.uint64(64 - n_lanes)
    phases = 2 * SWEEPS_PER_PASS
    for n in range(n_images):
        beside, below = right[n if len(right) > 1 else 0], down[n if len(down) > 1 else 0]
        field = Field(unary[n], beside, below, 1.0 / climb.temperature)
        draw = Draw(climb.k0, climb.k1, climb.first_image + n, climb.first_sample)
        y = labels[n]
        dirty[:] = everyone
        pending[:] = True
        done = 0
        while True:
            moved[:] = _ZERO
            both = done == 0 and start == PERTURBED  # not a literal, for which `describe_row` would be compiled twice
            for step in range(height + phases):
                if step < height:
                    r, slot0, site0 = step, step % ring * width, np.int64(row + step) * full_width + column
                    sites.best[slot0 : slot0 + width] = UNKNOWN
                    if done == 0:
                        if both:
                            describe_row(field, draw, sites, scratch, dirty, r, slot0, site0, r & 1, both)
                        # The first visit overwrites the first colour: its start only shows whether a lane changed.
                        skipped = (row + r + column) & 1 if max_sweeps > 0 and moved[0] == everyone else 2
                        start_row(field, draw, sites, scratch, y, start, given, n, r, slot0, site0, skipped)
                for phase in range(phases):
                    r, colour = step - 1 - phase, phase & 1
                    if r < 0 or r >= height or done + phase // 2 >= max_sweeps or not pending[colour, r]:
                        continue
                    pending[colour, r] = False
                    slot0, site0 = r % ring * width, np.int64(row + r) * full_width + column
                    c0 = (row + r + column + colour) & 1
                    if done > 0 or (phase < 2 and start != PERTURBED):
                        describe_row(field, draw, sites, scratch, dirty, r, slot0, site0, c0, both)
                    changed = visit_row(field, draw, sites, scratch, y, dirty, r, slot0, site0, c0)
                    if changed:
                        moved[phase // 2] |= changed
                        pending[1 - colour, max(r - 1, 0) : r + 2] = True
            for s in range(SWEEPS_PER_PASS):
                for lane in range(n_lanes):
                    if moved[s] >> np.uint64(lane) & _ONE:
                        sweeps[n, lane] = done + s + 1
            done += SWEEPS_PER_PASS
            if done >= max_sweeps or moved[SWEEPS_PER_PASS - 1] == _ZERO:
                break
    return sweeps


def room(slots, n_lanes, n_labels):
    """Allocate the arrays of the active rows."""
    sites = Sites(
        np.empty((slots, n_lanes), np.uint8),
        np.empty((slots, n_lanes), np.uint8),
        np.empty(slots, np.uint8),
        np.empty((slots, n_labels), np.float32),
        np.empty((slots, 17), np.float32),
        np.empty(slots, np.uint16),
    )
    bytes_per_lane = 4 if n_labels <= 4 else 8 if n_labels <= 8 else (n_labels + 15) // 16 * 16
    scratch = Scratch(
        BOUNDS,
        HOLDERS,
        VERDICTS,
        np.empty(4),
        np.empty(n_labels),
        np.empty((16, 4), np.uint32),
        np.zeros(64, np.uint8),
        np.zeros(64 * bytes_per_lane, np.uint8),
        np.empty(960, np.float32),
        np.empty(64, np.uint64),
        np.empty(64, np.uint64),
        np.empty(64, np.uint32),
    )
    return sites, scratch
