"""Samples with a shared error: an offset per label that is equal at all sites of an image.

A network that confuses two labels usually does so everywhere in an image. Independent noise per site averages out over
the image, so areas would look far more certain than they are.

The noise is Philox: a function of (seed, image, sample, label) for offsets and presence, and of (seed, image, sample,
site) for labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from locpmap.arrays import Array, frozen, place_like, to_numpy
from locpmap.inference import LocPMAP, samples
from locpmap.inference.api import place_decoding
from locpmap.kernels.reference import noise
from locpmap.noise import Key, key_of
from locpmap.potentials import Potentials

MAX_SCORES = 1 << 24  # in the copies of an image that are decoded together
SITES_PER_CHUNK = 1 << 14  # the sums of one chunk fit into a core's cache
MAX_SHARED = 4.0  # largest standard deviation for which exp(offset) is far inside the range of single precision
BELOW_ONE = np.float32(1 - 2.0**-23)  # makes uniform × sum smaller than the sum after rounding


def shared_samples(
    image: Potentials,
    decoder: LocPMAP,
    shared: float,
    presence: Array | None,
    number: int,
    seed: int,
    device: str,
) -> Iterator[Array]:
    """Yield samples (S,) of one image, each with its own N(0, shared²) offset added to the scores of each label.

    With ``presence``, label k is excluded from a sample with probability ``1 - presence[k]``. In the other samples
    its scores increase by ``-log presence[k]``, so that its mean weight is unchanged.

    If no neighbours are coupled, labels are independent given the offsets and are sampled directly, in O(S · L) per
    sample. Otherwise LocPMAP draws the samples.

    Args:
        image: Potentials without a batch axis.
        decoder: LocPMAP, with the number of samples to draw.
        shared: Standard deviation of the offsets.
        presence: None, or probabilities (L,) from 1e-6 to 1, at least one of them 1.
        number: Index of the image in the noise's keys.
        seed: Seed of the noise.
        device: As in :func:`locpmap.infer`.
    """
    from scipy.special import ndtri

    key, shape = key_of(seed), (decoder.n_samples, image.n_labels)
    offsets = shared * ndtri(_label_uniforms(key, noise.SHARED, number, *shape))
    if presence is not None:
        present = _label_uniforms(key, noise.PRESENCE, number, *shape) < presence
        offsets = np.where(present, offsets - np.log(presence), -np.inf)
    if _is_independent(image, decoder) and shared <= MAX_SHARED * decoder.temperature:
        place_decoding(image, decoder, "auto", device)  # raises the errors of `infer`
        yield from _independent(image, offsets / decoder.temperature, decoder.temperature, key, number)
    else:
        low, high, *_ = noise.words(key, noise.SHARED_SEED, number, 0, np.zeros(1, np.int64))[:, 0].tolist()
        yield from _climbed(image, decoder, offsets, low + (high << 32), device)


def _label_uniforms(key: Key, stream: int, image: int, n_samples: int, n_labels: int) -> Array:
    """Return one uniform per sample and label, (M, L)."""
    samples = np.arange(n_samples, dtype=np.uint64)
    zero = np.zeros_like(samples)
    last = zero + np.uint64(image + (stream << 28))
    groups = [noise.philox((zero, zero + np.uint64(g << 16), samples, last), key) for g in range(-(-n_labels // 4))]
    return noise.uniform(np.concatenate(groups)[:n_labels].T)


def _site_uniforms(key: Key, image: int, four: int, n_sites: int) -> Array:
    """Return one uniform per site for four consecutive samples, (4, S), since a Philox call gives four numbers."""
    found = np.empty((4, n_sites), np.float32)
    for lo in range(0, n_sites, SITES_PER_CHUNK):
        sites = np.arange(lo, min(lo + SITES_PER_CHUNK, n_sites))
        found[:, sites[0] : sites[-1] + 1] = noise.uniform(noise.words(key, noise.SHARED_SITE, image, four, sites))
    return found * BELOW_ONE


def _is_independent(image: Potentials, decoder: LocPMAP) -> bool:
    """Return whether the label of a site depends on its own scores and noise only."""
    plain = isinstance(decoder.blocks, str) and isinstance(decoder.start, str)
    return plain and decoder.start in ("random", "perturbed") and decoder.temperature > 0 and not image.pairwise.coupled


def _independent(image: Potentials, offsets: Array, temperature: float, key: Key, number: int) -> Iterator[Array]:
    """Sample ``p(y_i) ∝ exp(unary[i, y_i] / temperature + offset[y_i])`` by inverting cumulative sums.

    Sums are in single precision, so probabilities have an error of about 1e-7. A forbidden label has weight 0 and is
    never drawn, because the uniform number times the last sum is smaller than the last sum.
    """
    scores = to_numpy(image.unary, "unary")[0].T.astype(np.float32, order="C")  # (L, S)
    scores -= scores.max(axis=0)
    scores *= np.float32(1 / temperature)
    weights = np.exp(scores, out=scores)
    masked = None if image.masked is None else to_numpy(image.masked, "mask")[0]
    n_labels, n_sites = weights.shape
    for m, offset in enumerate(offsets):
        if m % 4 == 0:
            uniforms = _site_uniforms(key, number, m // 4, n_sites)
        factors = np.exp(offset - offset.max()).astype(np.float32)
        labels = np.zeros(n_sites, np.min_scalar_type(-n_labels))
        for lo in range(0, n_sites, SITES_PER_CHUNK):
            sums = weights[:, lo : lo + SITES_PER_CHUNK] * factors[:, None]
            for k in range(1, n_labels):
                sums[k] += sums[k - 1]
            some = labels[lo : lo + SITES_PER_CHUNK]
            threshold = uniforms[m % 4, lo : lo + SITES_PER_CHUNK] * sums[-1]
            for k in range(n_labels - 1):
                some += sums[k] <= threshold
        yield labels if masked is None else np.where(masked, -1, labels)


def _climbed(image: Potentials, decoder: LocPMAP, offsets: Array, seed: int, device: str) -> Iterator[Array]:
    """Yield samples of LocPMAP: one sample from each of several copies of the image with different offsets."""
    once = replace(decoder, n_samples=1)
    n_copies = max(1, MAX_SCORES // (image.n_sites * image.n_labels))
    for lo in range(0, decoder.n_samples, n_copies):
        some = offsets[lo : lo + n_copies, None].astype(np.float32)
        if image.masked is not None:  # an offset of -inf could forbid the only label of a masked site
            some = np.where(to_numpy(image.masked, "mask")[..., None], np.float32(0), some)
        copies = replace(image, unary=frozen(image.unary + place_like(image.unary, some)), batched=True)
        if not isinstance(decoder.start, str):
            once = replace(once, start=np.broadcast_to(decoder.start, (len(some), *np.shape(decoder.start))))
        (labels,) = samples(copies, once, seed=seed, first_image=lo, device=device)
        yield from to_numpy(labels, "samples").reshape(len(some), -1)
