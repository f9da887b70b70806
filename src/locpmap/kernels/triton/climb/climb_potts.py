"""LocPMAP's climb on a 4-connected grid with Potts weights, two labels or more, in the lazy noise scheme.

One launch performs all sweeps.  Teams of programs process one image after another, all samples together, in phases.  A
phase is one colour of a sweep; a team's programs synchronise between phases.  The first two phases visit every site
and draw the noise.  The next two search for the labels that may change.  Later phases visit only a queue of pairs (a
site and a sample) with a changed neighbour.  Each team has scratch for one image: memory does not grow with the batch.

Phases call functions that are not inlined, because compile time grows much faster than the size of a function.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.arrays import of_images
from locpmap.errors import InputError
from locpmap.kernels import perturbation
from locpmap.kernels.model import Array, GridWindow
from locpmap.kernels.perturbation import GIVEN
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.climb.potts_grid import Drawn, Image, Sizes, Terms, describe_sites, grid_field, lanes
from locpmap.kernels.triton.climb.potts_visits import clear_marks, first_visit, list_open, start_words, visit
from locpmap.kernels.triton.grid_barrier import BARRIER, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.lazy_noise import room_of
from locpmap.kernels.triton.philox import Draw

TILE, VISIT = 128, 128  # lanes per tile; pairs visited together
MAX_PAIRS = 2**31 - 2**20  # limit of pairs per colour for 32-bit indices, with a margin for a few visits
TILES_EACH = 32  # minimum number of tiles per program and colour: smaller images get fewer programs

COUNTERS = BARRIER.value + 32  # per team: the words of `wait_for_all` and one cache line
SEARCH, QUEUE = tl.constexpr(2), tl.constexpr(4)  # the first phases that search for pairs, and that read a queue

PERTURBED = tl.constexpr(perturbation.PERTURBED)


class Plan(NamedTuple):
    """The division of images among teams of programs, and the sizes of their scratch."""

    pack: int  # samples per word, which share Philox calls
    n_words: int
    n_teams: int
    team: int  # programs per team
    reals_apart: int  # stride between teams in `Room.reals`
    wholes_apart: int
    queue_apart: int
    list_apart: int  # capacity of a program's list, which lies in the second queue while that is unused


class Room(NamedTuple):
    """Scratch memory, one section per team."""

    reals: Any  # two labels: `Drawn.scores`; otherwise `Terms.log_p` and `Terms.cumulative`
    wholes: Any  # int32: the rest of `Drawn` (not for two labels), two queues, `Terms.facts`
    plan: Plan


def climb_potts(
    unary: Array, right: Array, down: Array, grid: GridWindow, climb: Climb, span: Span
) -> tuple[Array, Array]:
    """Return labels (n, S, R), uint8 up to 127 labels, else int16, and the last sweep that changed any, (n, R)."""
    n_images, n_sites, n_labels = unary.shape
    height, width, n_samples, device = grid.height, grid.width, span.n_samples, unary.device
    bits = 8 if n_labels <= 127 else 16
    registers = 64 if n_labels == 2 else 96
    programs = resident_programs(device, registers)
    plan = _plan(n_images, height, width, n_labels, n_samples, bits, programs, TILES_EACH)
    pack, n_teams, dtype = plan.pack, plan.n_teams, torch.uint8 if bits == 8 else torch.int16
    labels = torch.empty((n_images, n_sites, plan.n_words * pack), dtype=dtype, device=device)
    given = of_images(climb.given, span.lo, span.hi).to(torch.uint8) if climb.start == GIVEN else labels
    scores = torch.empty((n_teams, plan.reals_apart), dtype=unary.dtype, device=device)
    wholes = torch.empty((n_teams, plan.wholes_apart), dtype=torch.int32, device=device)
    notes = torch.zeros(COUNTERS * n_teams + n_images * n_samples, dtype=torch.int32, device=device)
    field = grid_field(right, down, grid, plan.n_words)
    # The number of counters is passed with the sizes: Triton compares global constants at every launch.
    sizes = Sizes(climb.start, n_labels, room_of(n_labels), pack, bits, TILE, VISIT, COUNTERS)
    _, temperature, *key = climb.perturbation
    arrays, draw = (unary, given, labels, notes), (*key, climb.first_image + span.lo, span.first)
    room = Room(scores, wholes, plan)
    numbers = (temperature, n_images, n_samples, climb.max_sweeps)
    _climb[(n_teams * plan.team,)](arrays, room, field, *draw, *numbers, sizes, **at_once(registers))
    return labels[:, :, :n_samples], notes.as_strided((n_images, n_samples), (n_samples, 1), COUNTERS * n_teams)


@lru_cache(maxsize=64)  # computing it takes as long as a launch, and sizes recur
def _plan(
    n_images: int, height: int, width: int, n_labels: int, n_samples: int, bits: int, programs: int, tiles_each: int
) -> Plan:
    n_sites = height * width
    pack = 8 if n_labels == 2 else 4
    n_words = triton.cdiv(n_samples, pack)
    n_tiles = triton.cdiv(height * ((width + 1) // 2) * n_words, TILE)
    if n_tiles * TILE * pack > MAX_PAIRS:
        raise InputError(
            f"an image has {n_sites} sites, expected fewer than 2^29 for lazy noise on a GPU: use device='cpu'"
        )
    team = max(1, min(programs, n_tiles // tiles_each))
    n_teams = min(n_images, programs // team)
    team = max(1, min(programs // n_teams, n_tiles))
    two_colours = 2 * n_tiles * TILE
    list_apart = triton.cdiv(n_tiles, team) * TILE * pack
    queue_apart = team * list_apart
    wholes_apart = 2 * queue_apart + n_sites + n_sites % 2
    if n_labels == 2:
        reals_apart = two_colours * pack
    else:
        reals_apart = 2 * n_sites * n_labels
        wholes_apart += two_colours * (1 + bits // 8)
    return Plan(pack, n_words, n_teams, team, reals_apart, wholes_apart, queue_apart, list_apart)


@triton.jit(do_not_specialize=[*Draw._fields, "n_images", "n_samples", "max_sweeps"])
def _climb(
    arrays,
    room,
    field,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    first_sample,
    temperature: tl.float64,
    n_images,
    n_samples,
    max_sweeps,
    SIZES: tl.constexpr,
):
    unary_ptr, given_ptr, labels_ptr, notes_ptr = arrays
    plan = room.plan
    PACK: tl.constexpr = SIZES.pack
    TILE: tl.constexpr = SIZES.tile
    START: tl.constexpr = SIZES.start
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    word_type: tl.constexpr = tl.int64 if SIZES.bits * PACK > 32 else tl.int32
    words_ptr = labels_ptr.to(tl.pointer_type(word_type), bitcast=True)
    scale = tl.cast(temperature, dtype)
    draw = Draw(k0, k1, first_image, first_sample)
    team, member = tl.program_id(0) // plan.team, tl.program_id(0) % plan.team
    n_sites = field.height * field.width
    n_lanes = field.height * ((field.width + 1) // 2) * field.n_words
    items = (tl.cdiv(n_lanes, TILE) * TILE).to(tl.int64)
    terms, drawn, queues = _rooms(room, team, n_sites, items, SIZES, word_type)
    own_list = queues + plan.queue_apart + member.to(tl.int64) * plan.list_apart
    changed = notes_ptr + SIZES.counters * plan.n_teams
    arrivals = notes_ptr + SIZES.counters * team
    waiting = arrivals + BARRIER  # queue lengths, indexed by phase modulo 3
    turn = 0
    n = team.to(tl.int64)
    while n < n_images:
        unary = unary_ptr + n * n_sites * SIZES.n_labels
        words = words_ptr + n * n_sites * field.site_apart
        labels = labels_ptr + n * n_sites * field.site_apart * PACK
        image = Image(terms, draw, field, words, labels, changed + n * n_samples, n_samples, n, items, scale)
        tile = member
        while tile * TILE < n_sites:
            describe_sites(unary, terms, tile * TILE, n_sites, scale, SIZES)
            tile += plan.team
        turn += 1
        wait_for_all(arrivals, turn, plan.team)
        if member == 0:
            tl.store(waiting + tl.arange(0, 4), 0, mask=tl.arange(0, 4) < 3)
        if START != PERTURBED:  # label the second colour, which first visits to the first colour read
            tile = member
            while tile * TILE < n_lanes:
                at = lanes(field, tile, 1, TILE)
                labelled = start_words(unary, given_ptr, image, at, SIZES)
                tl.store(words + at.site.to(tl.int64) * field.site_apart + at.word, labelled, mask=at.inside)
                tile += plan.team
            turn += 1
            wait_for_all(arrivals, turn, plan.team)
        phase = 0
        going = n >= 0
        left = 0
        while going:
            colour = phase % 2
            sweep = _sweep_of(phase, START)
            begin = colour * items
            kept = Drawn(drawn.scores + begin * PACK, drawn.firsts + begin, drawn.ticks + begin)
            pairs = own_list
            first, step = 0, SIZES.visit
            if phase < QUEUE:
                left, tile = 0, member
                while tile * TILE < n_lanes:
                    if phase < SEARCH:
                        left = first_visit(unary, given_ptr, image, kept, pairs, left, tile, colour, SIZES)
                    else:
                        left = list_open(image, kept, pairs, left, tile, colour, SIZES)
                    tile += plan.team
                tl.debug_barrier()  # other threads wrote the list
            else:
                pairs = queues + colour * plan.queue_apart
                first, step = member * SIZES.visit, plan.team * SIZES.visit
                if member == 0:
                    tl.store(waiting + (phase + 2) % 3, 0)
            while first < left:
                other, waits = queues + (1 - colour) * plan.queue_apart, waiting + (phase + 1) % 3
                visit(image, kept, pairs, other, waits, first, left, colour, sweep, phase >= QUEUE - 1, SIZES)
                first += step
            turn += 1
            wait_for_all(arrivals, turn, plan.team)
            phase += 1
            if phase >= QUEUE:
                left = tl.load(waiting + phase % 3, volatile=True)
            going = ((phase % 2 == 1) | (_sweep_of(phase, START) <= max_sweeps)) & ((phase < QUEUE) | (left > 0))
        if phase >= QUEUE:  # clear the marks left where max_sweeps ended the climb
            first = member * SIZES.visit
            while first < left:
                clear_marks(image, queues, first, left, 0, SIZES)
                first += plan.team * SIZES.visit
        n += plan.n_teams


@triton.jit
def _sweep_of(phase, START: tl.constexpr):
    """Return the sweep of a phase, from 1; the first visits of perturbed starts count as sweep 0."""
    return phase // 2 + (0 if START == PERTURBED else 1)


@triton.jit
def _rooms(room, team, n_sites, items, SIZES: tl.constexpr, word_type: tl.constexpr):
    """Return the scratch of a team: `Terms`, `Drawn` and the queues."""
    plan = room.plan
    reals = room.reals + team.to(tl.int64) * plan.reals_apart
    wholes = room.wholes + team.to(tl.int64) * plan.wholes_apart
    facts = wholes + plan.wholes_apart - n_sites
    firsts = wholes.to(tl.pointer_type(word_type), bitcast=True)
    if SIZES.n_labels == 2:
        return Terms(reals, reals, facts), Drawn(reals, firsts, wholes), wholes
    else:
        ticks = wholes + 2 * items * (SIZES.bits // 8)
        terms = Terms(reals, reals + plan.reals_apart // 2, facts)
        return terms, Drawn(reals, firsts, ticks), ticks + 2 * items
