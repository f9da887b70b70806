"""Labelled data in batches of inputs of one shape, and ways to split them: by process, at random, into mini-batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from locpmap.arrays import Array
from locpmap.features import Features
from locpmap.learning.processes import Processes

VOID = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """Features, labels and site weights of N inputs on one graph."""

    features: Features
    labels: Array  # (N, S) int16, VOID at sites without a label, which are removed from the graph
    site_weights: Array  # (1|N, 1|S) float64

    @property
    def n_images(self) -> int:
        return len(self.labels)

    def part(self, images: slice | Array) -> Self:
        """Return the batch of the inputs at the given positions."""
        weights = self.site_weights if len(self.site_weights) == 1 else self.site_weights[images]
        return type(self)(self.features.take(images), np.ascontiguousarray(self.labels[images]), weights)

    def mask(self) -> Array | None:
        """Return a mask of the void sites in the shape of the input, or None if every site has a label."""
        void, batch = self.labels == VOID, (self.n_images,) if self.features.batched else ()
        return void.reshape(*batch, *self.features.structure.shape) if void.any() else None

    def restricted_to(self, sites: Array) -> Self:
        """Return the batch with weight 0 outside ``sites`` (N, S); sites of weight 0 still influence neighbours."""
        weights = np.broadcast_to(self.site_weights, self.labels.shape) * sites
        return replace(self, site_weights=weights)

    @property
    def n_sites(self) -> int:
        """Number of labelled sites of positive weight."""
        return int(((self.site_weights > 0) & (self.labels != VOID)).sum())

    def weight(self) -> float:
        """Return the total weight of the labelled sites."""
        return float((np.broadcast_to(self.site_weights, self.labels.shape) * (self.labels != VOID)).sum())


def images_of_process(batches: Sequence[Batch], processes: Processes) -> Sequence[Batch]:
    """Return the images of this process: numbers rank, rank + size, rank + 2 · size and so on."""
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
    """Split the data at random into training and held-out batches: by image or, with fewer than 5 images, by site."""
    generator = np.random.default_rng([seed, 0x5EED])
    n_images = sum(batch.n_images for batch in batches)
    training, held_out = [], []
    if n_images < 5:
        for batch in batches:
            out = generator.random(batch.labels.shape) < fraction
            training.append(batch.restricted_to(~out))
            held_out.append(batch.restricted_to(out))
        return training, held_out
    # Stratified by shape: order images by shape, at random within a shape, and take them at regular intervals.
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
    """Return a fixed random subset, about 1 / ``every`` of the images; all images if the subset has no weight."""
    generator = np.random.default_rng(every)
    chosen: list[Batch] = []
    for batch in batches if every > 1 else ():
        some = np.flatnonzero(generator.random(batch.n_images) * every < 1)
        if len(some) and (part := batch.part(some)).weight() > 0:
            chosen.append(part)
    return chosen or list(batches)


def thinned_to(batches: Sequence[Batch], n_sites: int) -> list[Batch]:
    """Return a fixed random subset of the images with about ``n_sites`` labelled sites, or all if there are fewer."""
    return thinned(batches, max(1, sum(batch.n_sites for batch in batches) // n_sites))


def draw(batches: Sequence[Batch], size: Callable[[Batch], int], seed: int, step: int) -> Batch:
    """Draw a mini-batch of at most ``size(batch)`` inputs of one shape; it depends on (seed, step) only."""
    generator = np.random.default_rng([seed, step])
    counts = np.array([batch.n_images for batch in batches])
    batch = batches[generator.choice(len(batches), p=counts / counts.sum())]
    if batch.n_images <= size(batch):
        return batch
    return batch.part(np.sort(generator.choice(batch.n_images, size(batch), replace=False)))
