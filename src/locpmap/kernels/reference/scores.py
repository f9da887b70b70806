"""Scores of labellings: sums of unary and pairwise terms."""

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import VolumeLinks


def edge_tables(model: Model, image: int, edges: Array) -> Array:
    """Return the label tables of the given edges, (len(edges), L, L)."""
    features = model.features[image if len(model.features) > 1 else 0]
    tables = model.tables[image if len(model.tables) > 1 else 0]
    features = features[edges if len(features) > 1 else np.zeros(len(edges), int)]
    tables = tables[edges if len(tables) > 1 else np.zeros(len(edges), int)]
    return np.einsum("ef,efab->eab", features, tables)


def pair_scores(model: Model, image: int, first: Array, second: Array) -> Array:
    """Return the score of one pair of labels per edge, (E,)."""
    features = model.features[image if len(model.features) > 1 else 0]
    if model.potts:
        return np.where(first == second, features[:, 0], 0.0)
    tables = model.tables[image if len(model.tables) > 1 else 0]
    which = np.arange(len(model.edges)) if len(tables) > 1 else np.zeros(len(model.edges), int)
    return (features * tables[which, :, first, second]).sum(axis=1)


def total_scores(model: Model, labels: Array) -> npt.NDArray[np.float64]:
    """Return θ(y) of every image, (N,), in double precision; labels (N, S)."""
    unary = np.take_along_axis(model.unary, labels[:, :, None], axis=2)[:, :, 0].sum(axis=1, dtype=np.float64)
    first, second = labels[:, model.edges[:, 0]], labels[:, model.edges[:, 1]]
    return unary + [pair_scores(model, n, first[n], second[n]).sum() for n in range(len(labels))]


def volume_scores(unary: Array, links: VolumeLinks, labels: Array) -> npt.NDArray[np.float64]:
    """Return θ(y) of every image, (N,), for Potts weights on a volume or a 4-connected grid; labels (N, S).

    No list of edges is built.
    """
    totals = np.take_along_axis(unary, labels[:, :, None], axis=2)[:, :, 0].sum(axis=1, dtype=np.float64)
    whole = labels.reshape(len(labels), *links.shape)
    for step, weights in zip(links.steps, links.weights, strict=True):
        first, second = ends_of(step, links.shape)
        equal = (whole[:, *first] == whole[:, *second]).reshape(len(labels), -1)
        totals += np.add.reduce(np.broadcast_to(weights, equal.shape), axis=1, where=equal, dtype=np.float64)
    return totals


def local_scores(model: Model, labels: Array, image: int | None = None, unary: Array | None = None) -> Array:
    """Return ``unary[i, k]`` plus the pairwise scores of label k with the neighbours' labels.

    The shape is (N, S, L) for labels (N, S).  If ``image`` is given, it is (S, L) for labels (S,) of that image.
    ``unary`` (S, L) then replaces the model's unaries, for example by perturbed ones.
    """
    if image is None:
        return np.stack([local_scores(model, labels[n], n) for n in range(len(labels))])
    scores = np.array(model.unary[image] if unary is None else unary, np.float64)
    first, second = model.edges[:, 0], model.edges[:, 1]
    if model.potts:
        weights = np.broadcast_to(model.features[image if len(model.features) > 1 else 0, :, 0], len(model.edges))
        np.add.at(scores, (first, labels[second]), weights)
        np.add.at(scores, (second, labels[first]), weights)
        return scores
    tables = edge_tables(model, image, np.arange(len(model.edges)))
    every = np.arange(len(model.edges))
    np.add.at(scores, first, tables[every, :, labels[second]])
    np.add.at(scores, second, tables[every, labels[first], :])
    return scores


def ends_of(step: tuple[int, int, int], shape: tuple[int, int, int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the slices of the first ends of all edges with a step, and of their second ends."""
    first = tuple(slice(max(0, -d), max(0, min(n, n - d))) for d, n in zip(step, shape, strict=True))
    second = tuple(slice(max(0, d), max(0, min(n, n + d))) for d, n in zip(step, shape, strict=True))
    return first, second
