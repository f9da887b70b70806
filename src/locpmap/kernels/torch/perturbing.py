"""What the samples of a climb start with: perturbed unaries, and first labels; see `locpmap.kernels.reference.noise`.

Scores are laid out (n, S, L, R), labels (n, S, R).  Scores are made label by label, out of a few tensors (n, S, R).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from locpmap.kernels.perturbation import DROP, GIVEN, LOGISTIC, NONE, PERTURBED, PLAIN, Perturbation
from locpmap.kernels.reference import noise as streams
from locpmap.kernels.torch.noise import WORD, Keys, keys_of, pieces, uniform, waiting_time, words

LAZY = 4  # the lazy scheme for more than two labels, beside those of `locpmap.kernels.perturbation`


def perturb(
    unary: torch.Tensor,
    site_id: torch.Tensor,
    perturbation: Perturbation,
    first_image: int,
    first_sample: int,
    n_samples: int,
) -> torch.Tensor:
    """The unaries (n, S, L) that samples ``first_sample ..`` climb on, (n, S, L, R) in the same type."""
    scheme, amount, k0, k1 = perturbation
    if scheme == NONE:
        return unary[:, :, :, None].expand(-1, -1, -1, n_samples)
    how = {PLAIN: plain, LOGISTIC: logistic, DROP: dropped, LAZY: lazy}[scheme]
    return how(unary, amount, keys_of(k0, k1, first_image, len(unary), site_id), first_sample, n_samples)


def begin(
    unary: torch.Tensor,
    scores: torch.Tensor,
    site_id: torch.Tensor,
    perturbation: Perturbation,
    start: int,
    given: torch.Tensor,
    first_image: int,
    first_sample: int,
    labels: torch.Tensor,
) -> None:
    """Fill ``labels`` (n, S, R) with what the climbs on ``scores`` (n, S, L, R) begin at; ``given`` is (n, S)."""
    if start == PERTURBED:
        labels.copy_(scores.argmax(dim=2))
    elif start == GIVEN:
        labels.copy_(given[:, :, None].expand(labels.shape))
    else:
        keys = keys_of(perturbation.k0, perturbation.k1, first_image, len(unary), site_id)
        labels.copy_(random_labels(unary, perturbation.scheme, keys, first_sample, labels.shape[2]))


def random_labels(unary: torch.Tensor, scheme: int, keys: Keys, first: int, count: int) -> torch.Tensor:
    """A uniformly random allowed label per site and sample, (n, S, R)."""
    allowed = unary > -torch.inf
    n_allowed = allowed.sum(dim=2, keepdim=True)
    if scheme == LOGISTIC:
        nth = torch.where(n_allowed == 2, pieces(keys, streams.START_BITS, first, count, per_word=32), 0)
    elif scheme == LAZY:
        nth = pieces(keys, streams.START, first, count) * n_allowed >> 32
    else:
        nth = words(keys, streams.START, samples(keys, first, count))[0] * n_allowed >> 32
    # The label after which more than `nth` allowed ones have been seen: as many are before it as have seen no more.
    return sum((seen[:, :, None] <= nth).long() for seen in allowed.cumsum(2).unbind(2))


def samples(keys: Keys, first: int, count: int) -> torch.Tensor:
    """The numbers of samples ``first ..``, (R,)."""
    return torch.arange(first, first + count, device=keys.site.device)


def plain(unary: torch.Tensor, temperature: float, keys: Keys, first: int, count: int) -> torch.Tensor:
    """``unary + temperature · Gumbel``."""
    scores = unary.new_empty((*unary.shape, count))
    for k, word in enumerate(label_words(keys, streams.PLAIN, first, count, unary.shape[2])):
        gumbel = -torch.log(-torch.log(uniform(word, unary.dtype)))
        scores[:, :, k] = unary[:, :, k, None] + temperature * gumbel
    return scores


def label_words(keys: Keys, stream: int, first: int, count: int, n_labels: int) -> Iterator[torch.Tensor]:
    """One word (n, S, R) for every label in turn."""
    for group in range((n_labels + 3) // 4):
        yield from words(keys, stream, samples(keys, first, count), group)[: n_labels - 4 * group]


def logistic(unary: torch.Tensor, temperature: float, keys: Keys, first: int, count: int) -> torch.Tensor:
    """Two labels: one uniform is the difference of their noises."""
    coarse, fine = (pieces(keys, stream, first, count, 2) for stream in (streams.LOGISTIC, streams.LOGISTIC_FINE))
    bits = (coarse << 16) + fine
    odds = (bits.to(unary.dtype) + 0.5) / ((WORD - bits).to(unary.dtype) + 0.5)
    second = unary[:, :, 1, None] - temperature * torch.log(odds)
    return torch.stack([unary[:, :, 0, None].expand_as(second), second], dim=2)


def dropped(unary: torch.Tensor, share: float, keys: Keys, first: int, count: int) -> torch.Tensor:
    """Unaries of 0 at a share of the sites; forbidden labels stay forbidden."""
    word = words(keys, streams.DROP, samples(keys, first, count))[0] >> (32 - streams.BITS)
    drop = word < math.ceil(share * 2.0**streams.BITS - 0.5)  # u < share, in whole numbers
    return torch.where(drop[:, :, None] & (unary > -torch.inf)[..., None], 0.0, unary[..., None])


def lazy(unary: torch.Tensor, temperature: float, keys: Keys, first: int, count: int) -> torch.Tensor:
    """More than two labels, drawn top-down: who rings first and when, then the other clocks."""
    n_labels, dtype = unary.shape[2], unary.dtype
    log_p = torch.log_softmax((unary - unary.amax(dim=2, keepdim=True)) / temperature, dim=2)
    word = pieces(keys, streams.LAZY_SITE, first, count)
    winner = first_label(log_p.exp(), uniform(word, dtype))
    fine = label_words(keys, streams.LAZY_FINE, first, count, n_labels + 1)
    clock = waiting_time(((word & 255) << 24) + (next(fine) >> 8), dtype).log()
    scores = unary.new_empty((*unary.shape, count))
    for k, (coarse, rest) in enumerate(zip(lazy_bytes(keys, first, count, n_labels), fine, strict=True)):
        wait = waiting_time((coarse << 24) + (rest >> 8), dtype).log() - log_p[:, :, k, None]
        scores[:, :, k] = -temperature * torch.where(winner == k, clock, torch.logaddexp(clock, wait))
    return scores


def lazy_bytes(keys: Keys, first: int, count: int, n_labels: int) -> Iterator[torch.Tensor]:
    """The leading byte (n, S, R) of every label's wait in turn: sixteen to a call, for 1, 2 or 4 samples."""
    room = 4 if n_labels <= 4 else 8 if n_labels <= 8 else 16
    for group in range((n_labels + room - 1) // room):
        found = pieces(keys, streams.LAZY_CLOCK, first * room, count * room, per_word=4, group=group)
        yield from found.unflatten(2, (count, room)).unbind(3)[: n_labels - room * group]


def first_label(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Inverse of the cumulative distribution (n, S, L) at u (n, S, R), the likeliest label first, then in order."""
    best = p.argmax(dim=2, keepdim=True)
    place = torch.arange(p.shape[2], device=p.device)
    order = torch.where(place == 0, best, place - (place <= best).long())
    ordered = p.gather(2, order)
    position = sum((u > total[:, :, None]).long() for total in ordered.cumsum(2).unbind(2))
    last = torch.where(ordered > 0, place, 0).amax(dim=2, keepdim=True)  # sums may fall short of 1 by rounding
    return order.gather(2, torch.minimum(position, last))
