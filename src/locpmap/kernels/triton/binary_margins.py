"""Margins of sites with two labels, and sums of their derivatives by the weights, inside kernels.

With two labels only the margin ``score(1) - score(0)`` of a site matters.  What it is made of is kept with it: sums of
products with those numbers are the derivatives by the weights.  Sums are in this order: the value; by the bias; by each
unary feature; for each row of neighbours, each pairwise feature and each label b of the neighbour, by the margin's part
``table[1, b] - table[0, b]``; then whatever the caller has besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import torch
import triton
import triton.language as tl

ROUND = 64  # programs whose sums the last one reads at a time
COUNTERS = 1024  # more than launches can be under way

_counters: dict[torch.device, Iterator[torch.Tensor]] = {}


def counter(device: torch.device) -> torch.Tensor:
    """A number that is 0, for programs to count themselves; the last sets it back, so that nobody has to clear it."""
    if device not in _counters:
        _counters[device] = cycle(torch.zeros(COUNTERS, dtype=torch.int32, device=device).split(1))
    return next(_counters[device])


def resident(device: torch.device, per_processor: int) -> int:
    """As many programs as run at once; a few in Triton's interpreter, which runs one after another."""
    if device.type != "cuda":
        return 3
    return per_processor * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def zeros(dtype: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr):
    """So many blocks (LANES,)."""
    blocks = ()
    for _ in tl.static_range(COUNT):
        blocks += (tl.zeros([LANES], dtype),)
    return blocks


@triton.jit
def table_entry(kind: tl.constexpr, f: tl.constexpr, own, other, N_GROUPS: tl.constexpr, N_FEATURES: tl.constexpr):
    """Where tables (G, F, 2, 2) have labels ``own`` at a site and ``other`` at its neighbour along an edge."""
    first = ((kind % N_GROUPS) * N_FEATURES + f) * 4
    return first + (2 * own + other if kind < N_GROUPS else 2 * other + own)


@triton.jit
def _difference(at_one, at_zero, dtype: tl.constexpr):
    return (tl.load(at_one) - tl.load(at_zero)).to(dtype)


@triton.jit
def margin_weights(
    weights_ptr,
    tables_ptr,
    dtype: tl.constexpr,
    KINDS: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
):
    """What the unary features, at last the bias, and the pairwise features at a neighbour's label add to a margin."""
    by_unary = ()
    for d in tl.static_range(N_UNARY + 1):
        by_unary += (_difference(weights_ptr + 2 * d + 1, weights_ptr + 2 * d, dtype),)
    by_pair = ()
    for r in tl.static_range(N_ROWS):
        for f in tl.static_range(N_FEATURES):
            for b in tl.static_range(2):
                one = tables_ptr + table_entry(KINDS[r], f, 1, b, N_GROUPS, N_FEATURES)
                zero = tables_ptr + table_entry(KINDS[r], f, 0, b, N_GROUPS, N_FEATURES)
                by_pair += (_difference(one, zero, dtype),)
    return by_unary, by_pair


@triton.jit
def read_around(
    unary,
    pairwise,
    labels,
    near,
    edge,
    there,
    inside,
    N_ROWS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
):
    """What margins are made of, blocks (LANES,): unary features; for each row a label and the edge's features.

    ``unary`` leads to the sites' features; ``near`` and ``edge``, a row each, say how far behind ``labels`` and
    ``pairwise`` those of neighbours and edges are, ``there`` whether there are such.
    """
    read = ()
    for d in tl.static_range(N_UNARY):
        read += (tl.load(unary + d, mask=inside, other=0.0),)
    for r in tl.static_range(N_ROWS):
        read += (tl.load(labels + near[r], mask=inside & there[r], other=-1),)
        for f in tl.static_range(N_FEATURES):
            read += (tl.load(pairwise + edge[r] + f, mask=inside & there[r], other=0.0),)
    return read


@triton.jit
def margins(
    read, by_unary, by_pair, N_ROWS: tl.constexpr, N_FEATURES: tl.constexpr, N_UNARY: tl.constexpr, LANES: tl.constexpr
):
    """Margins (LANES,) of what was read, and what they are linear in, a tuple."""
    features = ()
    margin = tl.zeros([LANES], by_unary[N_UNARY].dtype) + by_unary[N_UNARY]
    for d in tl.static_range(N_UNARY):
        margin += by_unary[d] * read[d]
        features += (read[d],)
    for r in tl.static_range(N_ROWS):
        other = read[N_UNARY + r * (1 + N_FEATURES)]
        for f in tl.static_range(N_FEATURES):
            for b in tl.static_range(2):
                seen = tl.where(other == b, read[N_UNARY + r * (1 + N_FEATURES) + 1 + f], 0.0)
                margin += by_pair[(r * N_FEATURES + f) * 2 + b] * seen
                features += (seen,)
    return margin, features


@triton.jit
def keep_sums(own_sums, sums, importance, is_first, N_SUMS: tl.constexpr, SUMS: tl.constexpr, LEVELS: tl.constexpr):
    """Add blocks (LANES,), each times a number, to a program's sums, in double precision; they begin at 0.

    ``SUMS`` is ``2 ** LEVELS`` and at least their number.  All are put together, for one sum over the lanes.
    """
    blocks = sums
    for _ in tl.static_range(SUMS - N_SUMS):
        blocks += (tl.zeros_like(sums[0]),)
    for level in tl.static_range(LEVELS):
        joined = ()
        for j in tl.static_range(SUMS >> (level + 1)):
            joined += (tl.join(blocks[2 * j], blocks[2 * j + 1]),)
        blocks = joined
    total = tl.sum(tl.reshape(blocks[0], [sums[0].shape[0], SUMS]), axis=0).to(tl.float64) * importance
    place, s = tl.arange(0, SUMS), tl.zeros([SUMS], tl.int32)
    for level in tl.static_range(LEVELS):  # joined first is farthest apart: the number backwards in binary
        s += ((place >> (LEVELS - 1 - level)) & 1) << level
    total += tl.load(own_sums + s, mask=(s < N_SUMS) & (is_first == 0), other=0.0)
    tl.debug_barrier()
    tl.store(own_sums + s, total, mask=s < N_SUMS)
    tl.debug_barrier()


@triton.jit
def is_last(arrived_ptr):
    """Whether all other programs have been here; then what they have stored can be read.  See :func:`counter`."""
    tl.debug_barrier()
    last = tl.atomic_add(arrived_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1
    if last:
        tl.store(arrived_ptr, 0)
    return last


@triton.jit
def keep_totals(sums_ptr, N_SUMS: tl.constexpr, SUMS: tl.constexpr, ROUNDS: tl.constexpr, ROUND: tl.constexpr):
    """Put the sums of all programs, added up always in the same order, in the place of the first one's."""
    s, row = tl.arange(0, SUMS), tl.arange(0, ROUND)
    parts = tl.zeros([ROUND, SUMS], tl.float64)
    for r in tl.static_range(ROUNDS):
        known = (r * ROUND + row < tl.num_programs(0))[:, None] & (s < N_SUMS)[None, :]
        part = sums_ptr + (r * ROUND + row)[:, None] * N_SUMS + s[None, :]
        parts += tl.load(part, mask=known, other=0.0, cache_modifier=".cg")
    total = tl.sum(parts, axis=0)
    tl.debug_barrier()  # all have been read
    tl.store(sums_ptr + s, total, mask=s < N_SUMS)
    tl.debug_barrier()


@triton.jit
def add_totals(
    totals_ptr,
    value_ptr,
    slope_ptr,
    table_slope_ptr,
    KINDS: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Add the totals to the results; ``ENTRIES`` is a power of two and at least the numbers of either."""
    tl.store(value_ptr, tl.load(value_ptr) + tl.load(totals_ptr))
    at = tl.arange(0, ENTRIES)
    held = at < 2 * (N_UNARY + 1)
    source = tl.where(at // 2 < N_UNARY, 2 + at // 2, 1)
    part = tl.load(totals_ptr + source, mask=held, other=0.0)
    slope = tl.load(slope_ptr + at, mask=held, other=0.0)
    tl.store(slope_ptr + at, slope + tl.where(at % 2 == 1, part, -part), mask=held)
    held = at < N_GROUPS * N_FEATURES * 4
    slope = tl.load(table_slope_ptr + at, mask=held, other=0.0)
    for r in tl.static_range(N_ROWS):
        alike, own, other = entry_of(at, KINDS[r], N_GROUPS, N_FEATURES)
        source = 2 + N_UNARY + (r * N_FEATURES + (at // 4) % N_FEATURES) * 2 + other
        part = tl.load(totals_ptr + source, mask=alike, other=0.0)
        slope += tl.where(own == 1, part, -part)
    tl.store(table_slope_ptr + at, slope, mask=held)


@triton.jit
def entry_of(at, kind: tl.constexpr, N_GROUPS: tl.constexpr, N_FEATURES: tl.constexpr):
    """Whether entries of tables (G, F, 2, 2) are of a kind of edge, and the labels at the site and at its neighbour."""
    alike = at // (4 * N_FEATURES) == kind % N_GROUPS
    first, second = (at // 2) % 2, at % 2
    if kind < N_GROUPS:
        return alike, first, second
    else:
        return alike, second, first
