"""Arrays of the Potts climb, for an image, its noise, the described rows and scratch.

Up to 64 samples climb together.  Each one is a *lane*: the labels of a site in all lanes are contiguous, and a machine
word holds one bit per lane.  Only a few rows at a time are *described*: `Sites` holds their probabilities, weights and
first labels.  Sweeps follow each other closely down the image, so these rows stay in the CPU cache.
"""

from typing import Any, NamedTuple


class Field(NamedTuple):
    """The scores of one image."""

    unary: Any  # (S, L)
    right: Any  # (H, W-1) weights of horizontal edges
    down: Any  # (H-1, W) weights of vertical edges
    inverse_temperature: Any


class Draw(NamedTuple):
    """The key and counters of an image's noise, without the site."""

    k0: Any
    k1: Any
    image: Any
    first_sample: Any


class Sites(NamedTuple):
    """The described sites, one slot each.  The docstring of `potts_contest` defines clocks and pulls."""

    first: Any  # (slots, lanes) uint8: the first label, whose clock is smallest without neighbours
    tick: Any  # (slots, lanes) uint8: leading byte of the uniform of that clock
    best: Any  # (slots,) uint8: the most probable label; UNKNOWN if the site is not described
    inverse_p: Any  # (slots, L) float32: 1 / p of each label
    pull: Any  # (slots, 17) float32: exp(-sum of weights) of each set of neighbours; the 17th is inf
    safe: Any  # (slots,) uint16: bit s is set if the neighbours in set s outweigh the others


class Scratch(NamedTuple):
    """Scratch arrays; the first three are copies of the tables in `potts_contest`."""

    bounds: Any
    holder_sets: Any
    verdicts: Any
    weights: Any  # (4,)
    tail: Any  # (L,) cumulative probabilities without the most probable label
    words: Any  # (16, 4) uint32: one word per lane
    flags: Any  # (64,) uint8
    clocks: Any  # (64 · bytes per lane,) uint8: leading bytes of the waits
    rivals: Any  # (960,) float32: see `potts_contest.judge`
    packed: Any  # (64,) uint64: labels of four neighbours, first label, current label; a byte each
    lane: Any  # (64,) uint64
    code: Any  # (64,) uint32


UNKNOWN = 255
