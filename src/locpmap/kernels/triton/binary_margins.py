"""Margins of sites with two labels, and sums of their derivatives by the weights, inside kernels.

With two labels only the margin ``score(1) - score(0)`` of a site matters.  It is linear in features that are kept with
it: sums of products with those are the derivatives by the weights.  An edge with feature f and table T adds
``f · (T[1, 0] - T[0, 0])`` at its first end, ``f · (T[0, 1] - T[0, 0])`` at its second, and where the label at the
other end is 1, at either, ``f · (T[1, 1] - T[1, 0] - T[0, 1] + T[0, 0])``.  So sums are in this order: the value; by
the bias; by each unary feature; for each group and each pairwise feature those three.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import torch
import triton
import triton.language as tl

from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.label_codes import has_label, has_one

MAX_UNARY, MAX_PAIR_SUMS = 8, 24  # that a thread has registers for
MAX_OFFSET = 2**29  # from an image to the next: a few times that still is an int32
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


def has_margins(data: Observations, tables: torch.Tensor) -> bool:
    """Whether there are two labels, and a thread can hold all sums."""
    n_groups, n_features, n_labels, _ = tables.shape
    small = all(part.shape[1] * part.shape[2] < MAX_OFFSET for part in (data.unary, data.pairwise))
    sums = 3 * n_groups * n_features
    return n_labels == 2 and small and data.unary.shape[2] <= MAX_UNARY and 0 < sums <= MAX_PAIR_SUMS


def sum_sizes(data: Observations, tables: torch.Tensor) -> dict[str, int]:
    """What kernels have to know of the sums when they are compiled."""
    n_groups, n_features, n_labels, _ = tables.shape
    n_unary = data.unary.shape[2]
    n_sums = 2 + n_unary + 3 * n_groups * n_features
    return {
        "N_GROUPS": n_groups,
        "N_FEATURES": n_features,
        "N_UNARY": n_unary,
        "N_SUMS": n_sums,
        "LEVELS": (n_sums - 1).bit_length(),
        "ENTRIES": triton.next_power_of_2(max(tables.numel(), (n_unary + 1) * n_labels)),
        "PAIR_EDGE": n_features if data.pairwise.shape[1] > 1 else 0,
    }


@triton.jit
def zeros(dtype: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr):
    """So many blocks (LANES,)."""
    blocks = ()
    for _ in tl.static_range(COUNT):
        blocks += (tl.zeros([LANES], dtype),)
    return blocks


@triton.jit
def margin_weights(
    weights_ptr,
    tables_ptr,
    dtype: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
):
    """What the bias and the features, in the order of their sums, are multiplied with."""
    weights = (_difference(weights_ptr + 2 * N_UNARY, dtype),)
    for d in tl.static_range(N_UNARY):
        weights += (_difference(weights_ptr + 2 * d, dtype),)
    for t in tl.static_range(N_GROUPS * N_FEATURES):
        table = tables_ptr + 4 * t
        t00, t01, t10, t11 = tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3)
        weights += ((t10 - t00).to(dtype), (t01 - t00).to(dtype), (t11 - t10 - t01 + t00).to(dtype))
    return weights


@triton.jit
def _difference(at, dtype: tl.constexpr):
    return (tl.load(at + 1) - tl.load(at)).to(dtype)


@triton.jit
def edge_features(edge, N_FEATURES: tl.constexpr):
    """The features of edges that a block of pointers leads to, a tuple of blocks."""
    features = ()
    if N_FEATURES % 2 == 0:  # two with one instruction
        for f in tl.static_range(N_FEATURES // 2):
            features += tl.split(tl.load((edge + 2 * f)[:, None] + tl.arange(0, 2)[None, :]))
    else:
        for f in tl.static_range(N_FEATURES):
            features += (tl.load(edge + f),)
    return features


@triton.jit
def read_around(unary, edge, N_ROWS: tl.constexpr, N_FEATURES: tl.constexpr, N_UNARY: tl.constexpr):
    """Features, blocks (LANES,): those of sites, where ``unary`` leads, and for each row those where ``edge`` leads."""
    read = ()
    for d in tl.static_range(N_UNARY):
        read += (tl.load(unary + d),)
    for r in tl.static_range(N_ROWS):
        read += edge_features(edge[r], N_FEATURES)
    return read


@triton.jit
def margins(
    codes,
    read,
    weights,
    KINDS: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    LANES: tl.constexpr,
):
    """Margins (LANES,) from the codes of labels and the features, and what they are linear in, in the order of sums.

    A row without a label may have any features.
    """
    features, none = (), tl.zeros([LANES], weights[0].dtype)
    for d in tl.static_range(N_UNARY):
        features += (read[d],)
    for g in tl.static_range(N_GROUPS):
        for f in tl.static_range(N_FEATURES):
            at_first, at_second, at_ones = None, None, None
            for r in tl.static_range(N_ROWS):
                if KINDS[r] % N_GROUPS == g:
                    feature = read[N_UNARY + r * N_FEATURES + f]
                    seen = tl.where(has_label(codes, r + 1), feature, 0.0)
                    if KINDS[r] < N_GROUPS:
                        at_first = _plus(at_first, seen)
                    else:
                        at_second = _plus(at_second, seen)
                    at_ones = _plus(at_ones, tl.where(has_one(codes, r + 1), feature, 0.0))
            features += (_either(at_first, none), _either(at_second, none), _either(at_ones, none))
    margin = none + weights[0]
    for s in tl.static_range(N_UNARY + 3 * N_GROUPS * N_FEATURES):
        margin += weights[1 + s] * features[s]
    return margin, features


@triton.jit
def _plus(total, part):
    """Their sum; the part where there is no other."""
    if total is None:
        return part
    else:
        return total + part


@triton.jit
def _either(total, other):
    if total is None:
        return other
    else:
        return total


@triton.jit
def plus_slopes(sums, loss, residual, features, N_SUMS: tl.constexpr):
    """Sums plus losses and derivatives by the margins, blocks (LANES,), of sites with such features."""
    more = (sums[0] + loss, sums[1] + residual)
    for s in tl.static_range(2, N_SUMS):
        more += (sums[s] + residual * features[s - 2],)
    return more


@triton.jit
def keep_sums(own_sums, sums, importance, is_first, N_SUMS: tl.constexpr, LEVELS: tl.constexpr):
    """Add blocks (LANES,), each times a number, to a program's sums, in double precision; they begin at 0.

    ``2 ** LEVELS`` is at least their number.  All are put together, for one sum over the lanes.
    """
    SUMS: tl.constexpr = 2**LEVELS
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
def add_totals(
    sums_ptr,
    value_ptr,
    slope_ptr,
    table_slope_ptr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    N_SUMS: tl.constexpr,
    LEVELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROUND: tl.constexpr,
):
    """Add the sums of all programs, added up always in the same order, to the results.

    ``ENTRIES`` is a power of two and at least the numbers of either slope.
    """
    SUMS: tl.constexpr = 2**LEVELS
    at, s, row = tl.arange(0, ENTRIES), tl.arange(0, SUMS), tl.arange(0, ROUND)
    in_slope, in_tables = at < 2 * (N_UNARY + 1), at < 4 * N_GROUPS * N_FEATURES
    value = tl.load(value_ptr)
    slope = tl.load(slope_ptr + at, mask=in_slope, other=0.0)
    table_slope = tl.load(table_slope_ptr + at, mask=in_tables, other=0.0)
    parts = tl.zeros([ROUND, SUMS], tl.float64)
    for r in tl.static_range(ROUNDS):
        known = (r * ROUND + row < tl.num_programs(0))[:, None] & (s < N_SUMS)[None, :]
        part = sums_ptr + (r * ROUND + row)[:, None] * N_SUMS + s[None, :]
        parts += tl.load(part, mask=known, other=0.0, cache_modifier=".cg")
    totals = tl.sum(parts, axis=0)
    tl.store(value_ptr, value + tl.sum(tl.where(s == 0, totals, 0.0), axis=0))
    by_unary = tl.gather(totals, tl.where(at // 2 < N_UNARY, 2 + at // 2, 1) % SUMS, 0)
    tl.store(slope_ptr + at, slope + tl.where(at % 2 == 1, by_unary, -by_unary), mask=in_slope)
    source = 2 + N_UNARY + 3 * (at // 4)
    at_first, at_second = tl.gather(totals, source % SUMS, 0), tl.gather(totals, (source + 1) % SUMS, 0)
    at_ones = tl.gather(totals, (source + 2) % SUMS, 0)
    first, second = (at // 2) % 2, at % 2  # labels at an edge's ends
    table_slope += tl.where(first == second, at_ones, -at_ones)
    table_slope += tl.where(second == 0, tl.where(first == 1, at_first, -at_first), 0.0)
    table_slope += tl.where(first == 0, tl.where(second == 1, at_second, -at_second), 0.0)
    tl.store(table_slope_ptr + at, table_slope, mask=in_tables)
