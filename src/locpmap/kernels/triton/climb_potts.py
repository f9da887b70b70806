"""LocPMAP's climb on a 4-connected grid with Potts weights, two labels or more, in the lazy noise scheme.

One launch does it all.  Teams of programs take one image after another, all its samples at once: they describe its
sites, draw its noise with the first sweep, and sweep on until nothing changes, waiting for one another between colours.
Scratch holds the perturbed scores of an image per team, so that memory does not grow with the batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels import perturbation
from locpmap.kernels.triton.potts_grid import Field, Terms, describe_sites, field_of, images_apart, lanes
from locpmap.kernels.triton.potts_visits import first_visit, later_visits, list_active, start_words
from locpmap.kernels.triton.turns import at_once, resident_programs, wait_for_all

FIRST, LATER, VISIT = 128, 128, 256  # lanes of a tile, at first and later; pairs of the list visited at a time
TILES_EACH = 32  # of later visits to a colour, that a program has at least: smaller images have fewer programs

PERTURBED = tl.constexpr(perturbation.PERTURBED)


class Draw(NamedTuple):
    """The key and the counters of the noise."""

    k0: int
    k1: int
    first_image: int
    first_sample: int


class Teams(NamedTuple):
    """How programs share the images."""

    n_teams: int
    team: int  # programs of each
    arrivals: Any  # (n_teams,) for `wait_for_all`


def climb_potts(
    unary: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
    temperature: float,
    k0: int,
    k1: int,
    first_image: int,
    first_sample: int,
    start: int,
    given: torch.Tensor,
    row: int,
    column: int,
    full_width: int,
    max_sweeps: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Climb for every image and sample, at least one sweep; fills ``labels`` (n, S, R): uint8, int16 beyond 127 labels.

    ``first_sample`` is a multiple of 8.  Returns the last sweep that changed anything, (n, R).
    """
    window = (row, column, full_width)
    draw = Draw(k0, k1, first_image, first_sample)
    return climb_with_scores(unary, right, down, temperature, draw, start, given, window, max_sweeps, labels)[0]


def climb_with_scores(
    unary: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
    temperature: float,
    draw: Draw,
    start: int,
    given: torch.Tensor,
    window: tuple[int, int, int],
    max_sweeps: int,
    labels: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, and the perturbed scores of the teams' last images, (T, 2, K, P, lanes): P samples in each lane's word.

    Axis 1 is the colour.  K is the number of labels or, of two, 1: by how much label 1 is ahead.
    """
    n_images, n_sites, n_labels = unary.shape
    height, width, n_samples, device = right.shape[1], down.shape[2], labels.shape[2], unary.device
    bits = 8 * labels.element_size()
    pack = 8 if n_labels == 2 else 4  # samples that share calls of Philox
    n_words = -(-n_samples // pack)  # triton.cdiv would cost as much as an allocation
    words = torch.int64 if bits * pack > 32 else torch.int32
    apart = labels.stride(1)  # where this is a number of whole words, the labels are filled where they are
    if direct := apart % pack == 0 and labels.stride(0) == n_sites * apart and labels.data_ptr() % 8 == 0:
        packed = labels.as_strided((n_images, n_sites, apart), (n_sites * apart, apart, 1)).view(words)
    else:
        packed = torch.empty((n_images, n_sites, n_words), dtype=words, device=device)
    n_tiles = -(-height * ((width + 1) // 2) * n_words // LATER)
    registers = 64 if n_labels == 2 else 96
    programs = resident_programs(device, registers)
    team = max(1, min(programs, n_tiles // TILES_EACH))
    n_teams = min(n_images, programs // team)
    team = max(1, min(programs // n_teams, n_tiles))

    def room(*shape: int, dtype: torch.dtype = unary.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    kept = 1 if n_labels == 2 else n_labels
    scores = room(n_teams, 2, kept, pack, n_tiles * LATER)
    firsts = room(n_teams, 2, n_tiles * LATER if n_labels > 2 else 1, pack, dtype=labels.dtype)
    pairs = room(n_teams * team, -(-n_tiles // team) * LATER * pack, dtype=torch.int32)
    described = (n_teams, n_sites, n_labels) if n_labels > 2 else (1,)
    terms = Terms(room(*described), room(*described), room(n_teams, n_sites, dtype=torch.int32))
    notes = torch.zeros(n_images * n_samples + n_teams, dtype=torch.int32, device=device)
    changed, arrivals = notes[: n_images * n_samples], notes[n_images * n_samples :]
    row, column, full_width = window
    field = Field(
        right,
        images_apart(right),
        down,
        images_apart(down),
        height,
        width,
        n_words,
        packed.shape[2],
        (row + column) % 2,
        row * full_width + column,
        full_width,
    )
    _climb[(n_teams * team,)](
        *(unary, given, terms, scores, firsts, pairs, draw, field, packed, packed.view(labels.dtype), changed),
        Teams(n_teams, team, arrivals),
        *(temperature, n_images, n_samples, max_sweeps),
        START=start,
        N_LABELS=n_labels,
        ROOM=4 if n_labels <= 4 else 8 if n_labels <= 8 else 16,
        PACK=pack,
        BITS=bits,
        FIRST=FIRST,
        LATER=LATER,
        VISIT=VISIT,
        **at_once(registers),
    )
    if not direct:
        labels.copy_(packed.view(labels.dtype)[:, :, :n_samples])
    return changed.view(n_images, n_samples), scores


@triton.jit(do_not_specialize=["n_images", "n_samples", "max_sweeps"])
def _climb(
    unary_ptr,
    given_ptr,
    terms,
    scores_ptr,
    firsts_ptr,
    list_ptr,
    draw,
    field,
    labels_ptr,
    single_ptr,
    changed_ptr,
    teams,
    temperature: tl.float64,
    n_images,
    n_samples,
    max_sweeps,
    START: tl.constexpr,
    N_LABELS: tl.constexpr,
    ROOM: tl.constexpr,
    PACK: tl.constexpr,
    BITS: tl.constexpr,
    FIRST: tl.constexpr,
    LATER: tl.constexpr,
    VISIT: tl.constexpr,
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    word_type: tl.constexpr = labels_ptr.dtype.element_ty
    KEPT: tl.constexpr = PACK if N_LABELS == 2 else N_LABELS * PACK
    scale = tl.full([1], temperature, dtype)
    team, member = tl.program_id(0) // teams.team, tl.program_id(0) % teams.team
    arrivals = teams.arrivals + team
    n_sites = field.height * field.width
    n_lanes = field.height * ((field.width + 1) // 2) * field.n_words
    items = (tl.cdiv(n_lanes, LATER) * LATER).to(tl.int64)
    scores_ptr += team.to(tl.int64) * 2 * KEPT * items
    if N_LABELS > 2:
        firsts_ptr += team * 2 * items * PACK
    described = team.to(tl.int64) * n_sites
    terms = Terms(terms.log_p + described * N_LABELS, terms.cumulative + described * N_LABELS, terms.facts + described)
    list_ptr += tl.program_id(0).to(tl.int64) * (tl.cdiv(tl.cdiv(n_lanes, LATER), teams.team) * LATER * PACK)
    turn = 0
    n = team.to(tl.int64)
    while n < n_images:
        unary = unary_ptr + n * n_sites * N_LABELS
        labels = labels_ptr + n * n_sites * field.site_apart
        tile = member
        while tile * FIRST < n_sites:
            describe_sites(unary, terms, tile * FIRST, n_sites, scale, N_LABELS, FIRST)
            tile += teams.team
        turn += 1
        wait_for_all(arrivals, turn, teams.team)
        if START != PERTURBED:  # the second colour, which the first visits of the first one look at
            tile = member
            while tile * LATER < n_lanes:
                at = lanes(field, tile, 1, LATER)
                how = (unary, given_ptr, terms, draw, field, n, at)
                begin = start_words(*how, START, N_LABELS, PACK, BITS, word_type)
                tl.store(labels + at.site.to(tl.int64) * field.site_apart + at.word, begin, mask=at.inside)
                tile += teams.team
            turn += 1
            wait_for_all(arrivals, turn, teams.team)
        colour = 0
        while colour < 2:
            tile = member
            while tile * FIRST < n_lanes:
                first_visit(
                    *(unary, given_ptr, terms, scores_ptr + colour * KEPT * items, firsts_ptr + colour * items * PACK),
                    *(draw, field, labels, changed_ptr, n_samples, n, tile, colour, items, scale),
                    *(START, N_LABELS, ROOM, PACK, BITS, FIRST),
                )
                tile += teams.team
            turn += 1
            wait_for_all(arrivals, turn, teams.team)
            colour += 1
        sweep = 0 if START == PERTURBED else 1
        everywhere = START == PERTURBED
        going = everywhere | _changed_in(changed_ptr + n * n_samples, n_samples, 1, LATER)
        while going & (sweep < max_sweeps):
            sweep += 1
            colour = 0
            while colour < 2:
                count, tile = 0, member
                while tile * LATER < n_lanes:
                    count = list_active(labels, list_ptr, field, tile, colour, count, everywhere, PACK, BITS, LATER)
                    tile += teams.team
                tl.debug_barrier()  # the list was written by other threads
                first = 0
                while first < count:
                    later_visits(
                        *(scores_ptr + colour * KEPT * items, firsts_ptr + colour * items * PACK, list_ptr, field),
                        *(single_ptr + n * n_sites * field.site_apart * PACK, changed_ptr, n_samples, n, first, count),
                        *(colour, items, sweep, N_LABELS, PACK, VISIT),
                    )
                    first += VISIT
                turn += 1
                wait_for_all(arrivals, turn, teams.team)
                colour += 1
            everywhere = sweep < 0
            going = _changed_in(changed_ptr + n * n_samples, n_samples, sweep, LATER)
        if going:  # cut short: marks are left
            size = n_sites.to(tl.int64) * field.site_apart
            first = member.to(tl.int64) * LATER
            while first < size:
                lane = first + tl.arange(0, LATER)
                word = tl.load(labels + lane, mask=lane < size, other=0, cache_modifier=".cg")
                bare = tl.zeros([LATER], word_type)
                for j in tl.static_range(PACK):
                    bare |= field_of(word, j, BITS).to(word_type) << (j * BITS)
                tl.store(labels + lane, bare, mask=lane < size)
                first += teams.team * LATER
        n += teams.n_teams


@triton.jit
def _changed_in(changed_ptr, n_samples, sweep, BLOCK: tl.constexpr):
    """Whether any of the samples changed in that sweep."""
    last = 0
    first = 0
    while first < n_samples:
        r = first + tl.arange(0, BLOCK)
        last = tl.maximum(last, tl.max(tl.load(changed_ptr + r, mask=r < n_samples, other=0, cache_modifier=".cg")))
        first += BLOCK
    return last >= sweep
