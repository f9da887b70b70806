"""Errors that all sites share.

Whoever takes a meadow for a field does so everywhere in an image.  Noise of its own for every site knows nothing of
that: over an image it averages out, and an area looks far surer than it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen, place_beside, to_numpy
from locpmap.inference import LocPMAP, samples
from locpmap.inference.api import place_decoding
from locpmap.inference.decoder import at_least
from locpmap.potentials import Potentials

Array = npt.NDArray[Any]
MOST = 1 << 24  # scores that copies of an image hold at a time
SITES_AT_ONCE = 1 << 14  # whose sums stay in a core's cache
LARGEST = 4.0  # standard deviation up to which exponentials of offsets stay far inside single precision


def shared_samples(
    image: Potentials,
    decoder: LocPMAP,
    shared: float,
    presence: Array | None,
    number: int,
    seed: int,
    settings: dict[str, Any],
) -> Iterator[Array]:
    """Samples (S,) of one image, each of potentials of its own: with N(0, shared²) added to the scores of each label.

    With ``presence``, label k is left out of a sample with probability ``1 - presence[k]``, and gains
    ``-log presence[k]`` in the others, so that on average its weight stays as it is.

    Where no neighbours are coupled, labels are independent given the offsets, and are drawn as such, in O(S·L) each
    with a small factor: the distribution is the same whatever climbs, and whichever way.  Elsewhere LocPMAP draws them.

    Args:
        image: Potentials without a batch axis.
        decoder: LocPMAP, with the number of samples to draw.
        shared: The standard deviation.
        presence: None, or (L,) of at least 1e-6 and at most 1, at least one of them 1.
        number: Of the image; with the seed it keys all noise.
        seed: The seed.
        settings: Others of :func:`locpmap.infer`.
    """
    rng = np.random.default_rng([seed, number])
    offsets = shared * rng.normal(size=(decoder.n_samples, image.n_labels))
    own_seed = int(rng.integers(2**62))
    if presence is not None:
        there = rng.random(offsets.shape) < presence
        offsets = np.where(there, offsets - np.log(presence), -np.inf)
    if _is_independent(image, decoder) and shared <= LARGEST * decoder.temperature:
        _check(image, decoder, **settings)
        yield from _independent(image, offsets / decoder.temperature, decoder.temperature, own_seed)
    else:
        yield from _climbed(image, decoder, offsets, own_seed, settings)


def _is_independent(image: Potentials, decoder: LocPMAP) -> bool:
    """Whether nothing but the scores of a site decides on its label, and that with noise."""
    plain = isinstance(decoder.blocks, str) and isinstance(decoder.start, str)
    return plain and decoder.start in ("random", "perturbed") and decoder.temperature > 0 and not image.pairwise.coupled


def _check(
    image: Potentials, decoder: LocPMAP, backend: str = "auto", device: str = "auto", n_threads: int | None = None
) -> None:
    """Refuse what `infer` would refuse, though nothing depends on it."""
    place_decoding(image, decoder, backend, device)
    if n_threads is not None:
        at_least("n_threads", n_threads, 1)


def _independent(image: Potentials, offsets: Array, temperature: float, seed: int) -> Iterator[Array]:
    """Samples of ``p(y_i) ∝ exp(unary[i, y_i] / temperature + offset[y_i])``: where a uniform number falls in its sums.

    Sums are in single precision, so a probability is off by some 1e-7.  A label that is forbidden adds nothing to
    them, and the number lies below the last, so it is never drawn.
    """
    scores = to_numpy(image.unary, "unary")[0].T.astype(np.float32, order="C")  # (L, S)
    scores -= scores.max(axis=0)
    scores *= np.float32(1 / temperature)
    weights = np.exp(scores, out=scores)
    masked = None if image.masked is None else to_numpy(image.masked, "mask")[0]
    n_labels, n_sites = weights.shape
    for m, offset in enumerate(offsets):
        rng = np.random.default_rng([seed, m])
        factors = np.exp(offset - offset.max()).astype(np.float32)
        labels = np.zeros(n_sites, np.min_scalar_type(-n_labels))
        for lo in range(0, n_sites, SITES_AT_ONCE):
            sums = weights[:, lo : lo + SITES_AT_ONCE] * factors[:, None]
            for k in range(1, n_labels):
                sums[k] += sums[k - 1]
            some = labels[lo : lo + SITES_AT_ONCE]
            place_of = rng.random(len(some), np.float32) * sums[-1]
            for k in range(n_labels - 1):
                some += sums[k] <= place_of
        yield labels if masked is None else np.where(masked, -1, labels)


def _climbed(
    image: Potentials, decoder: LocPMAP, offsets: Array, seed: int, settings: dict[str, Any]
) -> Iterator[Array]:
    """Samples of LocPMAP, each on a copy of the image."""
    once = replace(decoder, n_samples=1)
    at_once = max(1, MOST // (image.n_sites * image.n_labels))
    for lo in range(0, decoder.n_samples, at_once):
        some = offsets[lo : lo + at_once, None].astype(np.float32)
        if image.masked is not None:  # a masked site has one label, which nothing may take from it
            some = np.where(to_numpy(image.masked, "mask")[..., None], np.float32(0), some)
        copies = replace(image, unary=frozen(image.unary + place_beside(image.unary, some)), batched=True)
        if not isinstance(decoder.start, str):
            once = replace(once, start=np.broadcast_to(decoder.start, (len(some), *np.shape(decoder.start))))
        (labels,) = samples(copies, once, seed=seed, first_image=lo, **settings)
        yield from to_numpy(labels, "samples").reshape(len(some), -1)
