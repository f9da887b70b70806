"""The training data of an optimiser: batches divided among processes, with counts and feature scales."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.learning.batches import Batch, images_of_process, thinned
from locpmap.learning.linear import mean_square
from locpmap.learning.parameters import Parameters
from locpmap.learning.processes import ALONE, Processes


@dataclass(frozen=True, eq=False)
class Dataset:
    """Batches of all processes, with counts and scales that depend on the number of processes by rounding only."""

    batches: Sequence[Batch]
    scales: Array  # (P,) root mean square of the feature that each weight multiplies
    n_images: int
    n_sites: int  # labelled sites
    weight: float  # total weight of the labelled sites
    processes: Processes = ALONE

    @cached_property
    def own(self) -> Sequence[Batch]:
        """Batches with the images of this process."""
        return images_of_process(self.batches, self.processes)

    def part(self, batches: Sequence[Batch]) -> Self:
        """Return a subset of the data with its own counts and the scales of all data."""
        counts = np.array([[b.n_images, b.n_sites, b.weight()] for b in batches]).sum(axis=0)
        n_images, n_sites, weight = counts.tolist()
        return replace(self, batches=batches, n_images=int(n_images), n_sites=int(n_sites), weight=weight)

    def thinning(self, sites: int) -> int:
        """Return k such that one image in k gives about ``sites`` labelled sites, but about ten images or more."""
        return max(1, min(self.n_sites // sites, self.n_images // 10))

    def thinned(self, every: int) -> Self:
        """Return a subset of about one image in ``every``."""
        return self.part(thinned(self.batches, every))


def read_dataset(parameters: Parameters, batches: Sequence[Batch], processes: Processes = ALONE) -> Dataset:
    """Check the data and compute their counts and scales in one pass."""
    n_unary, n_pairwise = len(parameters.unary_names), len(parameters.pairwise_names)
    sums = np.zeros(4 + n_unary + n_pairwise)
    for batch in images_of_process(batches, processes):
        parameters.check(batch.features)
        # Weighted as in the objective: a site of weight 2 changes the scales as two sites would.
        of_sites, of_images = batch.site_weights, batch.site_weights.mean(axis=1, keepdims=True)
        means = mean_square(batch.features.unary, of_sites), mean_square(batch.features.pairwise, of_images)
        per_image = np.concatenate([[of_sites.mean()], *means])
        sums += np.concatenate([[batch.n_images, batch.n_sites, batch.weight()], batch.n_images * per_image])
    n_images, n_sites, weight, counted, *squares = processes.total(sums)  # counted: total weight of the images
    if weight <= 0:
        raise InputError("no site has a label that counts, expected labelled data")
    scales = _scales(parameters, *np.split(np.sqrt(np.array(squares) / counted), [n_unary]))
    if not np.isfinite(scales).all():
        raise InputError("features are too large to be squared, expected numbers below 1e150")
    return Dataset(batches, scales, int(n_images), int(n_sites), float(weight), processes)


def _scales(p: Parameters, unary: Array, pairwise: Array) -> Array:
    """Return the root mean square, (P,), of the feature of each weight, by which steps and tolerances are scaled."""
    unary, pairwise = (np.where(rms > 0, rms, 1.0) for rms in (unary, pairwise))
    if p.unary == "tables":
        head = np.repeat(np.append(unary, 1.0), p.n_labels)
    else:
        head = np.append(unary.mean(), np.ones(p.n_labels))[: p.n_unary]
    each = 1 if p.potts else p.n_labels**2
    return np.concatenate([head, np.tile(np.repeat(pairwise, each), p.n_groups)])
