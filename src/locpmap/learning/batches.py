"""Labelled data: batches of inputs of one shape, in memory or on disk, shared out among processes and subsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from locpmap.arrays import Array
from locpmap.features import Features
from locpmap.learning.processes import Processes

VOID = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """Features of N inputs on one graph, their labels and how much each site counts."""

    features: Features
    labels: Array  # (N, S) int16, VOID where a site has no label and is out of the graph
    site_weights: Array  # (1|N, 1|S) float64

    @property
    def n_images(self) -> int:
        """N."""
        return len(self.labels)

    def part(self, images: slice | Array) -> Batch:
        """Return some of the inputs."""
        weights = self.site_weights if len(self.site_weights) == 1 else self.site_weights[images]
        return Batch(self.features.take(images), np.ascontiguousarray(self.labels[images]), weights)

    def mask(self) -> Array | None:
        """Return the void sites in the shape of the input; None where there are none."""
        void, batch = self.labels == VOID, (self.n_images,) if self.features.batched else ()
        return void.reshape(*batch, *self.features.structure.shape) if void.any() else None

    def restricted_to(self, sites: Array) -> Batch:
        """Return the same graph where only sites marked in ``keep`` (N, S) count; the others stay as neighbours."""
        weights = np.broadcast_to(self.site_weights, self.labels.shape) * sites
        return Batch(self.features, self.labels, weights)

    @property
    def n_sites(self) -> int:
        """How many sites have a label and count."""
        return int(((self.site_weights > 0) & (self.labels != VOID)).sum())

    def weight(self) -> float:
        """Return the sum of the weights of labelled sites."""
        return float((np.broadcast_to(self.site_weights, self.labels.shape) * (self.labels != VOID)).sum())


def images_of_process(batches: Sequence[Batch], processes: Processes) -> Sequence[Batch]:
    """Return the images of this process: those at places rank, rank + size, .. of all."""
    if processes.size == 1:
        return batches
    own, first = [], 0
    for batch in batches:
        places = np.arange((processes.rank - first) % processes.size, batch.n_images, processes.size)
        first += batch.n_images
        if len(places):
            own.append(batch.part(places))
    return own


def split(batches: Sequence[Batch], fraction: float, seed: int) -> tuple[list[Batch], list[Batch]]:
    """Return training and held-out data: images at random or, where there are fewer than five, sites at random."""
    generator = np.random.default_rng([seed, 0x5EED])
    n_images = sum(batch.n_images for batch in batches)
    training, held_out = [], []
    if n_images < 5:
        for batch in batches:
            out = generator.random(batch.labels.shape) < fraction
            training.append(batch.restricted_to(~out))
            held_out.append(batch.restricted_to(out))
        return training, held_out
    # Every so many-th of the images, shape by shape and in random order within a shape: all shapes are held out alike.
    firsts = np.cumsum([0, *(batch.n_images for batch in batches)])
    order = np.concatenate([a + generator.permutation(b - a) for a, b in pairwise(firsts)])
    chosen = np.zeros(n_images, bool)
    count = max(1, round(fraction * n_images))
    chosen[order[((np.arange(count) + generator.random()) * n_images / count).astype(int)]] = True
    first = 0
    for batch in batches:
        out = chosen[first : first + batch.n_images]
        first += batch.n_images
        if not out.all():
            training.append(batch.part(np.flatnonzero(~out)))
        if out.any():
            held_out.append(batch.part(np.flatnonzero(out)))
    return training, held_out


def thinned(batches: Sequence[Batch], every: int) -> list[Batch]:
    """Return about one image in so many, at random but always the same ones; all if none is left that counts."""
    generator = np.random.default_rng(every)
    kept: list[Batch] = []
    for batch in batches if every > 1 else ():
        some = np.flatnonzero(generator.random(batch.n_images) * every < 1)
        if len(some) and (part := batch.part(some)).weight() > 0:
            kept.append(part)
    return kept or list(batches)


def thinned_to(batches: Sequence[Batch], n_sites: int) -> list[Batch]:
    """Return as many images as have about so many sites, or all of them."""
    return thinned(batches, max(1, sum(batch.n_sites for batch in batches) // n_sites))


def draw(batches: Sequence[Batch], size: Callable[[Batch], int], seed: int, step: int) -> Batch:
    """Return a random mini-batch of at most ``size(batch)`` inputs of one shape: a pure function of (seed, step)."""
    generator = np.random.default_rng([seed, step])
    counts = np.array([batch.n_images for batch in batches])
    batch = batches[generator.choice(len(batches), p=counts / counts.sum())]
    if batch.n_images <= size(batch):
        return batch
    return batch.part(np.sort(generator.choice(batch.n_images, size(batch), replace=False)))
