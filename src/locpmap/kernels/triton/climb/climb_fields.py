"""LocPMAP's climb with error fields, by single sites with Potts weights >= 0 and up to 255 labels.

The sites are a grid with 4 neighbours, or a volume with 6.

Every sample has its own scores, which are never stored.  A first launch draws the first labels (smallest clock, see
`reference.noise`) and the starting labels.  A second one performs all sweeps: its programs synchronise after each
colour.  The first sweep visits all sites, later ones those with a changed neighbour, which are marked.  A site is
*contested* if the label of a neighbour may be better than its first label.  Few sites are contested, so a program first
lists those of all its scans and then computes their noise, which keeps all threads busy.

Labels are stored sample by sample, (n, R, S), because the scores and nodes of neighbouring sites are contiguous.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels import perturbation
from locpmap.kernels.model import Array
from locpmap.kernels.spec import Climb
from locpmap.kernels.triton.climb.add_fields import Terms, corners_of
from locpmap.kernels.triton.climb.field_contest import around, contest, rivals_of, score_of
from locpmap.kernels.triton.climb.potts_grid import Field, lanes, lanes_at, number_of, plane_of
from locpmap.kernels.triton.grid_barrier import ARRIVALS, LATEST, at_once, is_still, resident_programs, wait_for_all
from locpmap.kernels.triton.lazy_noise import fast_exp, fast_log, logistic, room_of, start_bits
from locpmap.kernels.triton.philox import LAZY_SITE, START, Draw, pick, uniform, words

FIRST = 64  # sites per program of one warp that draws first labels
SCAN, VISIT = 512, 128  # sites scanned together, and contested sites decided together

NOTES = tl.constexpr(LATEST.value + 1)  # words of the barrier and the last sweep with a change; then those of all pairs
PERTURBED, GIVEN = tl.constexpr(perturbation.PERTURBED), tl.constexpr(perturbation.GIVEN)


class Sizes(NamedTuple):
    """The compile-time constants of a climb."""

    n_labels: int
    start: int  # kind of starting labels
    noisy: bool  # whether the temperature is above 0
    scales: bool  # whether there are fields, in addition to offsets
    room: int  # labels per sample whose leading noise bytes come from one Philox call of 16 bytes
    first: int  # `FIRST`, `SCAN` and `VISIT`
    scan: int
    visit: int


class State(NamedTuple):
    """Labels and noise of all pairs of an image and a sample, (n, R, S)."""

    labels: Any  # uint8
    marks: Any  # uint8: 1 where a neighbour changed since the last visit; valid after the first visit
    first: Any  # uint8 first labels
    normaliser: Any  # temperature times the log of the sum of exp(score / temperature)
    contested: Any  # (programs, scans of a program · SCAN) int32 lists of lanes, numbered through the program's scans
    label_apart: int  # strides of the scores
    site_apart: int


def climb_fields(
    scores: Array, field: Field, terms: Terms, draw: Draw, climb: Climb, given: Array | None, labels: Array
) -> Array:
    """Fill ``labels`` (n, R, S) uint8; return the last sweep that changed any, (n, R).

    Args:
        scores: Unaries (n, L, S), stored by label or by site.
        field: The grid or volume.
        terms: Fields of these images and samples.
        draw: Key and first counters of the noise.
        climb: Options.
        given: Labels (n, S) uint8 of these images, if the climb starts from given ones.
        labels: Output.
    """
    (n_images, n_samples, n_sites), n_labels, device = labels.shape, scores.shape[1], scores.device
    marks, first = (torch.empty_like(labels) for _ in range(2))
    normaliser = torch.empty(labels.shape, dtype=scores.dtype, device=device)
    notes = torch.zeros(NOTES.value + n_images * n_samples, dtype=torch.int32, device=device)
    temperature = climb.perturbation.amount
    pairs, n_lanes = n_images * n_samples, field.height * ((field.width + 1) // 2)
    resident = resident_programs(device)
    scan = SCAN if pairs * n_lanes >= SCAN * resident else VISIT  # with few sites, divide them among all programs
    sizes = Sizes(n_labels, climb.start, temperature > 0, terms.rows > 0, room_of(n_labels), FIRST, scan, VISIT)
    n_scans = pairs * triton.cdiv(n_lanes, scan)
    programs = (min(n_scans, resident),)
    contested = torch.empty((*programs, triton.cdiv(n_scans, *programs) * scan), dtype=torch.int32, device=device)
    state = State(labels, marks, first, normaliser, contested, *scores.stride()[1:])
    arrays, numbers = (scores, terms, field, state), (*draw, temperature)
    start = labels if given is None else given
    _begin[(pairs * triton.cdiv(n_sites, FIRST),)]((*arrays, start), *numbers, sizes, num_warps=1)
    _sweep[programs]((*arrays, notes), n_scans, *numbers, climb.max_sweeps, sizes, **at_once())
    return notes[NOTES.value :].reshape(n_images, n_samples)


@triton.jit(do_not_specialize=Draw._fields)
def _begin(
    arrays, k0: tl.uint32, k1: tl.uint32, first_image, first_sample, temperature: tl.float64, SIZES: tl.constexpr
):
    """Draw the first labels and the starting labels of a tile of sites of one pair."""
    scores_ptr, terms, field, state, given_ptr = arrays
    N_LABELS: tl.constexpr = SIZES.n_labels
    LANES: tl.constexpr = SIZES.first
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    n_sites = field.height * field.width
    n_tiles = tl.cdiv(n_sites, LANES)
    pair = (tl.program_id(0) // n_tiles).to(tl.int64)
    n, sample = pair // terms.n_samples, first_sample + pair % terms.n_samples
    # Lanes after the last site repeat it.
    site = tl.minimum(tl.program_id(0) % n_tiles * LANES + tl.arange(0, LANES), n_sites - 1)
    row = site // field.width
    column = site - row * field.width
    corners = corners_of(terms, pair, row, column)
    key = (k0, k1, first_image + n)
    number = number_of(field, row, column)
    unary, apart = scores_ptr + n * N_LABELS * n_sites + site.to(tl.int64) * state.site_apart, state.label_apart
    offsets = terms.offsets + pair * N_LABELS
    scale = tl.cast(temperature, dtype)
    if SIZES.noisy:
        inverse = 1.0 / scale
    peak = tl.full([LANES], float("-inf"), dtype)
    total = tl.zeros([LANES], dtype)  # sum of exp((score - peak) / temperature)
    best = tl.zeros([LANES], tl.int32)
    allowed = tl.zeros([LANES], tl.int32)
    for k in range(N_LABELS):
        if tl.load(offsets + k) > float("-inf"):
            score = score_of(unary, terms, pair, k, corners, apart, SIZES)
            better = score > peak
            if SIZES.noisy and N_LABELS > 2:
                high = tl.maximum(peak, score)
                gap = tl.minimum(peak, score) - tl.where(high > float("-inf"), high, 0.0)
                power = fast_exp(gap * inverse)
                total = tl.where(better, total * power + 1.0, total + power)
            best = tl.where(better, k, best)
            peak = tl.maximum(peak, score)
            allowed += (score > float("-inf")).to(tl.int32)
    peak = tl.where(allowed > 0, peak, 0.0)  # masked sites may lose their only label
    first = best
    if SIZES.noisy and N_LABELS == 2:
        lead = score_of(unary, terms, pair, 1, corners, apart, SIZES)
        lead -= score_of(unary, terms, pair, 0, corners, apart, SIZES)
        first = (lead > scale * logistic(key[0], key[1], key[2], sample, number, dtype)).to(tl.int32)
    elif SIZES.noisy:
        tl.store(state.normaliser + pair * n_sites + site, peak + scale * fast_log(tl.maximum(total, 1.0)))
        w0, w1, w2, w3 = words(key[0], key[1], LAZY_SITE, key[2], sample >> 2, number, 0)
        u = uniform(pick(w0, w1, w2, w3, sample & 3)).to(dtype) * total
        run = tl.full([LANES], 1.0, dtype)  # cumulative distribution times the total, the best label first
        beyond = u > run
        if tl.max(beyond.to(tl.int32)) > 0:
            for k in range(N_LABELS):
                if tl.load(offsets + k) > float("-inf"):
                    score = score_of(unary, terms, pair, k, corners, apart, SIZES)
                    power = tl.where(k == best, 0.0, fast_exp((score - peak) * inverse))
                    first = tl.where(beyond & (power > 0.0), k, first)
                    run += power
                    beyond &= u > run
    label = first
    if SIZES.start == GIVEN:
        label = tl.load(given_ptr + n * n_sites + site).to(tl.int32)
    elif SIZES.start != PERTURBED:
        if N_LABELS == 2:
            bit = (start_bits(key[0], key[1], key[2], sample, number) & 1).to(tl.int32)
            label = tl.where(allowed == 2, bit, best)
        else:
            w0, w1, w2, w3 = words(key[0], key[1], START, key[2], sample >> 2, number, 0)
            nth = ((pick(w0, w1, w2, w3, sample & 3).to(tl.int64) * allowed) >> 32).to(tl.int32)
            label = nth
            if tl.min(allowed) < N_LABELS:
                label = best
                seen = tl.zeros([LANES], tl.int32)
                for k in range(N_LABELS):
                    if tl.load(offsets + k) > float("-inf"):
                        free = tl.load(unary + tl.cast(k, tl.int64) * apart) > float("-inf")
                        label = tl.where(free & (seen == nth), k, label)
                        seen += free.to(tl.int32)
    tl.store(state.first + pair * n_sites + site, first.to(tl.uint8))
    tl.store(state.labels + pair * n_sites + site, label.to(tl.uint8))


@triton.jit(do_not_specialize=[*Draw._fields, "n_scans", "max_sweeps"])
def _sweep(
    arrays,
    n_scans,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    first_sample,
    temperature: tl.float64,
    max_sweeps,
    SIZES: tl.constexpr,
):
    """Perform the sweeps.  A scan is SCAN sites of one colour in one pair."""
    scores_ptr, terms, field, state, notes = arrays
    arrays = (scores_ptr, terms, Draw(k0, k1, first_image, first_sample), field, state)
    phase, sweep = 0, 1
    while sweep <= max_sweeps:
        n_contested, settled = _scan(arrays, notes, n_scans, phase % 2, sweep, SIZES)
        tl.debug_barrier()  # all of the list is read by all threads
        decided = _decide(arrays, notes, n_scans, n_contested, phase % 2, sweep, temperature, SIZES)
        if settled + decided > 0:
            tl.store(notes + LATEST, sweep)
        phase += 1
        wait_for_all(notes + ARRIVALS, phase, tl.num_programs(0))
        if phase % 2 == 0:
            sweep = tl.where(is_still(notes, sweep), max_sweeps, sweep) + 1


@triton.jit
def _scan(arrays, notes, n_scans, colour, sweep, SIZES: tl.constexpr):
    """Assign first labels to marked sites and list the contested ones; return their number, and if any site changed."""
    SCAN: tl.constexpr = SIZES.scan
    field, state = arrays[3], arrays[4]
    per_pair = _scans_of_pair(field, SIZES)
    listed = state.contested + tl.program_id(0).to(tl.int64) * (tl.cdiv(n_scans, tl.num_programs(0)) * SCAN)
    n_contested, changes, step, scan = 0, 0, 0, tl.program_id(0)
    while scan < n_scans:
        pair, tile = (scan // per_pair).to(tl.int64), scan % per_pair
        at = lanes(field, tile, colour, SCAN)
        marks = state.marks + pair * field.height * field.width + at.site
        marked = tl.load(marks, mask=at.inside, other=0, cache_modifier=".cg").to(tl.int32)
        marked = at.inside & ((marked > 0) | (sweep == 1))
        if tl.max(marked.to(tl.int32)) > 0:
            tl.store(marks, tl.zeros([SCAN], tl.uint8), mask=marked)
            mine, first, near, weight = around(arrays, pair, at, marked)
            contested = (rivals_of(first, near, weight, marked) > 0).to(tl.int32)
            changed = marked & (contested == 0) & (first != mine)
            changes = tl.maximum(changes, _assign(field, state, notes, pair, at, changed, first, sweep))
            place = n_contested + tl.cumsum(contested, 0) - 1
            tl.store(listed + place, at.number + (step - tile) * SCAN, mask=contested > 0)
            n_contested += tl.sum(contested)
        scan += tl.num_programs(0)
        step += 1
    return n_contested, changes


@triton.jit
def _decide(arrays, notes, n_scans, n_contested, colour, sweep, temperature, SIZES: tl.constexpr):
    """Assign the best labels to the listed sites; return if any changed."""
    VISIT: tl.constexpr = SIZES.visit
    field, state = arrays[3], arrays[4]
    per_pair = _scans_of_pair(field, SIZES)
    listed = state.contested + tl.program_id(0).to(tl.int64) * (tl.cdiv(n_scans, tl.num_programs(0)) * SIZES.scan)
    changes, begin = 0, 0
    while begin < n_contested:
        lane = begin + tl.arange(0, VISIT)
        inside = lane < n_contested
        lane = tl.load(listed + lane, mask=inside, other=0)
        scan = tl.program_id(0) + lane // SIZES.scan * tl.num_programs(0)
        pair = scan // per_pair
        number = (scan - pair * per_pair) * SIZES.scan + lane % SIZES.scan
        at, pair = lanes_at(field, number, inside, colour), pair.to(tl.int64)
        label, mine = contest(arrays, pair, at, inside, temperature, SIZES)
        changed = inside & (label != mine)
        changes = tl.maximum(changes, _assign(field, state, notes, pair, at, changed, label, sweep))
        begin += VISIT
    return changes


@triton.jit
def _scans_of_pair(field, SIZES: tl.constexpr):
    return tl.cdiv(field.height * ((field.width + 1) // 2), SIZES.scan)


@triton.jit
def _assign(field, state, notes, pair, at, changed, label, sweep):
    """Store the labels of sites that change, mark their neighbours, note the sweep; return if there are any."""
    own = pair * field.height * field.width + at.site
    changes = tl.max(changed.to(tl.int32))
    if changes > 0:
        tl.store(notes + NOTES + pair + tl.zeros_like(at.site), sweep, mask=changed)
        tl.store(state.labels + own, label.to(tl.uint8), mask=changed)
        marks, one = state.marks + own, tl.full(changed.shape, 1, tl.uint8)
        tl.store(marks - 1, one, mask=changed & (at.column > 0))
        tl.store(marks + 1, one, mask=changed & (at.column + 1 < field.width))
        _, row = plane_of(field, at.row)
        tl.store(marks - field.width, one, mask=changed & (row > 0))
        tl.store(marks + field.width, one, mask=changed & (row + 1 < field.plane))
        if field.back is not None:
            far, last = field.plane * field.width, field.height - field.plane
            tl.store(marks - far, one, mask=changed & (at.row >= field.plane))
            tl.store(marks + far, one, mask=changed & (at.row < last))
    return changes
