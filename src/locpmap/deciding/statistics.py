"""Sums over sites, on the CPU by kernels and on a GPU by torch."""

from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, is_tensor, namespace, place_like
from locpmap.kernels.cpu.dispatch import kernel_of

N_BINS = 64


class Labelled(NamedTuple):
    """Labels of sites, with sums over the sites of each label."""

    labels: Any  # (S,), on the device of the probabilities
    counts: Array  # (L,) number of sites, on the CPU as the next
    inside: Array  # (L,) sum of the label's own probability


class Masses(NamedTuple):
    """Sums over the probabilities of an image, for each label, (L,)."""

    totals: Array  # sum over sites
    largest: Array  # largest probability, rounded up to a multiple of 1 / 64
    presence: Array  # probability that the label occurs


def affine_argmax(probability: Any, slope: Array, offset: Array) -> Labelled:
    """Label each of S sites by argmax_k slope[k] · probability[i, k] + offset[k]."""
    n_sites, n_labels = probability.shape
    if is_tensor(probability):
        torch = namespace(probability)
        slopes, offsets = (place_like(probability, each).to(probability.dtype) for each in (slope, offset))
        labels = (probability * slopes + offsets).argmax(1)
        own = probability.gather(1, labels[:, None])[:, 0].double()
        sums = torch.stack([labels.bincount(minlength=n_labels).double(), labels.bincount(own, n_labels)])
        counts, inside = sums.cpu().numpy()
        return Labelled(labels, counts, inside)
    found = Labelled(np.empty(n_sites, np.int64), np.empty(n_labels), np.empty(n_labels))
    kind = probability.dtype
    kernel_of("numba", "affine_argmax")(probability, slope.astype(kind), offset.astype(kind), *found)
    return found


def label_masses(probability: Any) -> Masses:
    """Return totals, largest probability and presence of each label in an image.

    The presence, the probability that the label occurs, does not follow from the probabilities of single sites.  It is
    estimated as if the uncertain sites of a label were one region, in which errors are shared: as the median of the
    label's probability, weighted by that probability.
    """
    n_labels = probability.shape[1]
    if is_tensor(probability):
        place = (probability * N_BINS).long().clamp(max=N_BINS - 1)
        place += N_BINS * namespace(place).arange(n_labels, device=place.device)
        found = place.ravel().bincount(probability.ravel().double(), n_labels * N_BINS)
        masses = found.reshape(n_labels, N_BINS).cpu().numpy()
    else:
        masses = np.empty((n_labels, N_BINS))
        kernel_of("numba", "label_masses")(probability, masses)
    below = masses.cumsum(1)
    totals = below[:, -1]
    median = (below < 0.5 * totals[:, None]).sum(1)
    largest = np.where(totals > 0, N_BINS - (masses[:, ::-1] > 0).argmax(1), 0)
    return Masses(totals, largest / N_BINS, (median + 1) / N_BINS)


def columns(probability: Any, chosen: Array) -> Any:
    """Return the contiguous columns of the labels ``chosen`` (L,) of booleans."""
    if chosen.all():
        return probability
    place = np.flatnonzero(chosen)
    if is_tensor(probability):
        return probability.index_select(1, place_like(probability, place))
    return np.take(probability, place, axis=1)
