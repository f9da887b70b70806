"""Philox-4x32-10 on tensors, and the words, bytes and bits that samples take from it; see the reference.

Words are int64, of which 32 bits are used: not every device has unsigned types.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from locpmap.kernels.reference.noise import BITS

WORD = 0xFFFFFFFF

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Keys(NamedTuple):
    """What all noise of some images and sites is keyed by, besides the stream and the sample."""

    k0: int
    k1: int
    image: torch.Tensor  # (n, 1, 1) int64
    site: torch.Tensor  # (S, 1) int64


def keys_of(k0: int, k1: int, first_image: int, n_images: int, site_id: torch.Tensor) -> Keys:
    """The keys of images ``first_image ..``; ``site_id`` (S,) int64."""
    image = torch.arange(first_image, first_image + n_images, device=site_id.device)
    return Keys(int(k0), int(k1), image[:, None, None], site_id[:, None])


def words(keys: Keys, stream: int, calls: torch.Tensor, group: int = 0) -> Words:
    """The four words (n, S, C) of every call; ``calls`` (C,) int64 is the counter's third word."""
    high = (keys.site >> 32) + (group << 16)
    return philox((keys.site & WORD, high, calls, keys.image + (stream << 28)), keys.k0, keys.k1)


def philox(counter: Words, k0: int, k1: int) -> Words:
    """Ten rounds; counters broadcast."""
    c0, c1, c2, c3 = counter
    for _ in range(10):
        # Products wrap around at 64 bits, which changes neither of their halves.
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = (product1 >> 32 & WORD) ^ c1 ^ k0, product1 & WORD
        c2, c3 = (product0 >> 32 & WORD) ^ c3 ^ k1, product0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def pieces(keys: Keys, stream: int, first: int, count: int, per_word: int = 1, group: int = 0) -> torch.Tensor:
    """Pieces ``first ..`` of a stream, (n, S, count): its calls' words one after another, each cut into ``per_word``.

    The low bits of a word come first.
    """
    word, last_word = first // per_word, (first + count - 1) // per_word
    call, last_call = word // 4, last_word // 4
    calls = torch.arange(call, last_call + 1, device=keys.site.device)
    found = torch.stack(words(keys, stream, calls, group), dim=3).flatten(2)[:, :, word - 4 * call :]
    if per_word == 1:
        return found[:, :, :count]
    bits = 32 // per_word
    shifts = torch.arange(0, 32, bits, device=found.device)
    found = (found[:, :, : last_word + 1 - word, None] >> shifts) & (2**bits - 1)
    return found.flatten(2)[:, :, first - word * per_word :][:, :, :count]


def uniform(word: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A word as a number strictly inside (0, 1), exact in single precision."""
    return ((word >> (32 - BITS)).to(dtype) + 0.5) / 2.0**BITS


def waiting_time(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``-log u`` of ``u = (bits + 1/2) / 2^32``, accurate at both ends in single precision too."""
    rest = ((WORD - bits).to(dtype) + 0.5) / 2.0**32  # 1 - u
    return torch.where(rest < 0.5, -torch.log1p(-rest), -torch.log((bits.to(dtype) + 0.5) / 2.0**32))
