"""What the Potts climb keeps of an image, a sample and a row: plain arrays under names.

Samples are *lanes*: up to 64 of them are climbed together, a site's label in all of them side by side, so that one
look at a site serves all lanes and a machine word holds one bit of each.  Only a few rows at a time are *described*
(`Sites`): the sweeps follow one another down the image so closely that those rows stay in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """One image."""

    unary: Any  # (S, L)
    right: Any  # (H, W-1) weights
    down: Any  # (H-1, W)
    inverse_temperature: Any


class Draw(NamedTuple):
    """What keys the noise of an image's samples, besides the site."""

    k0: Any
    k1: Any
    image: Any
    first_sample: Any


class Sites(NamedTuple):
    """Described sites, one slot each."""

    first: Any  # (slots, lanes) uint8: the label whose clock rings first
    tick: Any  # (slots, lanes) uint8: the leading byte of that clock's uniform
    best: Any  # (slots,) uint8: the likeliest label, UNKNOWN before the site is described
    inverse_p: Any  # (slots, L) float32: 1 / p of each label
    pull: Any  # (slots, 17) float32: exp(-weights) of every set of neighbours; infinite for the 17th
    safe: Any  # (slots,) uint16: bit s: neighbours in set s outweigh the others, so a label they hold keeps the lead


class Scratch(NamedTuple):
    """Room to work in; the first three are tables of `potts_contest`, copied so that loops see plain arrays."""

    bounds: Any
    holder_sets: Any
    verdicts: Any
    weights: Any  # (4,)
    tail: Any  # (L,) cumulative probabilities after the likeliest label's
    words: Any  # (16, 4) uint32: one word per lane
    flags: Any  # (64,) uint8
    clocks: Any  # (64 · bytes per lane,) uint8: leading bytes of the waits
    rivals: Any  # (960,) float32: see `potts_contest.judge`
    packed: Any  # (64,) uint64: four neighbours' labels, the first label and the current one, a byte each
    lane: Any  # (64,) uint64
    code: Any  # (64,) uint32


UNKNOWN = 255
