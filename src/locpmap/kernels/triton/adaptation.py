"""The adaptation of a refiner to each image in one launch, which replaces about 80; see `refining.adapting`."""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.cache import cached
from locpmap.kernels.model import Array
from locpmap.kernels.triton.grid_barrier import BARRIER, at_once, resident_programs, wait_for_all

ITEMS = 2048  # points times labels that a program holds at once
PROGRAMS = 64  # for any number of images, so that rounding does not depend on it
SUMS = tl.constexpr(8)  # room for sums of a program, before those of its labels


class Rule(NamedTuple):
    """The numbers of the rule, and the bounds of its terms."""

    own: float
    weight: float
    threshold: float
    removed: float
    largest: float
    lowest: float
    large: float
    tiny: float


class Sizes(NamedTuple):
    """The compile-time constants of a launch."""

    masked: bool
    n_labels: int
    labels: int  # the next power of two
    points: int  # per program and step
    programs: int  # the next power of two


def adaptation(
    scores: Array, guided: Array, counted: Array | None, lattice: Array, rule: tuple[float, ...], n_steps: int
) -> tuple[Array, Array]:
    """Return the strengths and factors (N,) of images (N, .., K), from the pixels of a lattice (P,) on the host.

    ``counted`` (N, ..) excludes pixels where it is False, ``rule`` holds the fields of `Rule`.
    """
    (n_images, *shape, n_labels), device = scores.shape, scores.device
    places = cached((lattice,), device, lambda: torch.from_numpy(lattice).to(device))
    programs, labels = min(PROGRAMS, resident_programs(device)), triton.next_power_of_2(n_labels)
    found = torch.empty((2, n_images), dtype=scores.dtype, device=device)
    sums = torch.empty((2, programs, labels + SUMS.value), dtype=scores.dtype, device=device)
    notes = torch.zeros(BARRIER.value, dtype=torch.int32, device=device)
    counts = scores if counted is None else counted.contiguous().view(torch.uint8)
    sizes = Sizes(counted is not None, n_labels, labels, max(1, ITEMS // labels), triton.next_power_of_2(programs))
    arrays, numbers = (scores, guided, counts, places, found, sums, notes), (len(lattice), math.prod(shape), n_images)
    _adaptation[(programs,)](arrays, Rule(*rule), *numbers, n_steps, sizes, **at_once())
    return found[0], found[1]


@triton.jit
def _adaptation(arrays, rule, n_points, n_pixels, n_images, n_steps, SIZES: tl.constexpr):
    """Add up the terms of an image's points, some by each program; every program then adds up all sums."""
    LABELS: tl.constexpr = SIZES.labels
    POINTS: tl.constexpr = SIZES.points
    scores, guided, counted, places, found, sums, notes = arrays
    points = (scores, guided, counted, places, n_points)
    dtype: tl.constexpr = scores.dtype.element_ty
    turn = 0
    n = tl.program_id(0).to(tl.int64) * 0
    while n < n_images:
        centre = tl.zeros([LABELS], dtype)
        count, both = tl.zeros([POINTS], dtype), tl.zeros([POINTS], dtype)
        square, best = tl.zeros([POINTS], dtype), tl.zeros([POINTS], dtype)
        first = tl.program_id(0) * POINTS
        while first < n_points:
            z, g, some = _terms(points, rule, n * n_pixels, first, SIZES)
            p = _softmax(z, some, SIZES)
            centre += tl.sum(p, 0)
            count += some.to(dtype)
            square += tl.sum(p * p, 1)
            both += tl.sum(p * tl.exp(g), 1)
            best += tl.max(p, 1)
            first += POINTS * tl.num_programs(0)
        turn += 1
        own = sums + (turn % 2 * tl.num_programs(0) + tl.program_id(0)) * (LABELS + SUMS)
        tl.store(own + SUMS + tl.arange(0, LABELS), centre)
        tl.store(own, tl.sum(count))
        tl.store(own + 1, tl.sum(both))
        tl.store(own + 2, tl.sum(square))
        tl.store(own + 3, tl.sum(best))
        wait_for_all(notes, turn, tl.num_programs(0))
        total = tl.maximum(_sum_of(sums, 0, turn, SIZES), 1.0)
        chance = _squares_of(sums, turn, SIZES) / (total * total)
        possible = _sum_of(sums, 2, turn, SIZES) / total - chance
        agreement = (_sum_of(sums, 1, turn, SIZES) / total - chance) / (possible + rule.tiny)
        agreement = tl.where(possible > 10 * rule.tiny, agreement, 0.0)  # else all predictions are equal, but rounding
        strength = tl.minimum(tl.maximum((agreement - rule.threshold) / (1 - rule.threshold), 0.0), 1.0)
        confidence = _sum_of(sums, 3, turn, SIZES) / total
        target = confidence + strength * rule.removed * (1 - confidence)
        logarithm = strength * 0.0
        step = 0
        while step < n_steps:
            factor = tl.exp(logarithm)
            best, slope = tl.zeros([POINTS], dtype), tl.zeros([POINTS], dtype)
            first = tl.program_id(0) * POINTS
            while first < n_points:
                z, g, some = _terms(points, rule, n * n_pixels, first, SIZES)
                u = _below_best(z + strength * ((rule.own - 1) * z + rule.weight * g), rule, SIZES)
                p = _softmax(factor * u, some, SIZES)
                highest = tl.max(p, 1)
                best += highest
                slope -= highest * tl.sum(p * u, 1)
                first += POINTS * tl.num_programs(0)
            turn += 1
            own = sums + (turn % 2 * tl.num_programs(0) + tl.program_id(0)) * (LABELS + SUMS)
            tl.store(own, tl.sum(best))
            tl.store(own + 1, tl.sum(slope))
            wait_for_all(notes, turn, tl.num_programs(0))
            move = target - _sum_of(sums, 0, turn, SIZES) / total
            move /= factor * _sum_of(sums, 1, turn, SIZES) / total + rule.tiny
            logarithm = tl.minimum(tl.maximum(logarithm + move, -rule.largest), rule.largest)
            step += 1
        if tl.program_id(0) == 0:
            tl.store(found + n, strength)
            tl.store(found + n_images + n, tl.where(strength > 0, tl.exp(logarithm), 1.0))
        n += 1


@triton.jit
def _sum_of(sums, which, turn, SIZES: tl.constexpr):
    """Return the sum over all programs of one of their sums."""
    program = tl.arange(0, SIZES.programs)
    there = sums + (turn % 2 * tl.num_programs(0) + program) * (SIZES.labels + SUMS) + which
    return tl.sum(tl.load(there, mask=program < tl.num_programs(0), other=0.0, cache_modifier=".cg"))


@triton.jit
def _squares_of(sums, turn, SIZES: tl.constexpr):
    """Return the sum over labels of the squared sum over all programs."""
    program, label = tl.arange(0, SIZES.programs)[:, None], tl.arange(0, SIZES.labels)[None, :]
    there = sums + (turn % 2 * tl.num_programs(0) + program) * (SIZES.labels + SUMS) + SUMS + label
    total = tl.sum(tl.load(there, mask=program < tl.num_programs(0), other=0.0, cache_modifier=".cg"), 0)
    return tl.sum(total * total)


@triton.jit
def _terms(points, rule, begin, first, SIZES: tl.constexpr):
    """Return scores below the best one and guided log means of some points, (points, labels), and which count.

    ``begin`` is the number of the image's first pixel, ``first`` that of the first point.
    """
    scores, guided, counted, places, n_points = points
    point = first + tl.arange(0, SIZES.points)
    some = point < n_points
    place = begin + tl.load(places + point, mask=some, other=0)
    if SIZES.masked:
        some &= tl.load(counted + place, mask=some, other=0) > 0
    label = tl.arange(0, SIZES.labels)[None, :]
    there, held = place[:, None] * SIZES.n_labels + label, some[:, None] & (label < SIZES.n_labels)
    values = tl.load(scores + there, mask=held, other=float("-inf"))
    return _below_best(values, rule, SIZES), tl.load(guided + there, mask=held, other=0.0), some


@triton.jit
def _below_best(values, rule, SIZES: tl.constexpr):
    """Return values minus the best one of each point, at least ``rule.lowest``; also where all are -inf."""
    label = tl.arange(0, SIZES.labels)[None, :]
    best = tl.maximum(tl.max(tl.where(label < SIZES.n_labels, values, float("-inf")), 1), -rule.large)
    return tl.maximum(values - best[:, None], rule.lowest)


@triton.jit
def _softmax(values, some, SIZES: tl.constexpr):
    """Compute the softmax of values whose maximum is 0; 0 at points that do not count."""
    label = tl.arange(0, SIZES.labels)[None, :]
    p = tl.where(label < SIZES.n_labels, tl.exp(values), 0.0)
    return tl.where(some[:, None], p / tl.sum(p, 1)[:, None], 0.0)
