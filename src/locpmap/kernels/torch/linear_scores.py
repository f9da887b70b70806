"""Scores of a log-linear model for many images and sites at once, and the slopes of what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from locpmap.kernels.observations import Observations
from locpmap.kernels.torch.placement import kept_on_device, on_device

Array = npt.NDArray[Any]
CHUNK = 2**24  # numbers in the largest tensor of a chunk of images


def chunks(lo: int, hi: int, per_image: int) -> Iterator[slice]:
    """Slices of the images lo..hi, each with at most CHUNK numbers, or of one image."""
    step = max(1, CHUNK // max(per_image, 1))
    for first in range(lo, hi, step):
        yield slice(first, min(first + step, hi))


def slots_of(data: Observations, sites: Array) -> tuple[Array, Array]:
    """The slots of the sites' neighbour lists, and the position in ``sites`` that each belongs to."""
    degree = np.diff(data.indptr)[sites]
    row = np.repeat(np.arange(len(sites)), degree)
    ends = np.cumsum(degree)
    return np.arange(len(row)) + np.repeat(data.indptr[:-1][sites] - (ends - degree), degree), row


def edge_features(data: Observations, images: slice, slots: Array) -> torch.Tensor:
    """(1|n, 1|len(slots), F)."""
    features = kept_on_device(data.pairwise)
    features = features[images] if len(features) > 1 else features
    return (features[:, on_device(data.edge[slots]).long()] if features.shape[1] > 1 else features).double()


def edge_tables(data: Observations, images: slice, slots: Array, tables: torch.Tensor) -> torch.Tensor:
    """Scores (n, len(slots), L, L) of the label at a slot's site and of the neighbour's."""
    group = on_device(data.group[data.edge[slots]]).long()
    second = on_device(data.end[slots] == 1)[:, None, None, None]
    directed = torch.where(second, tables[group].mT, tables[group])
    features = edge_features(data, images, slots).expand(images.stop - images.start, len(slots), -1)
    return torch.einsum("nsf,sfab->nsab", features, directed)


def local_scores(
    data: Observations,
    images: slice,
    sites: Array,
    slots: Array,
    row: Array,
    around: torch.Tensor,
    weights: torch.Tensor,
    tables: torch.Tensor,
) -> torch.Tensor:
    """Scores (n, len(sites), M, L) of the sites' labels given those around them, (n, len(slots), M) with -1 for void.

    One product of matrices for each kind of edge: its features, spread over the neighbour's label, times its tables.
    """
    n_labels, n_samples = weights.shape[1], around.shape[2]
    alone = kept_on_device(data.unary)[images][:, on_device(sites)].double() @ weights[:-1] + weights[-1]
    scores = alone[:, :, None].expand(-1, -1, n_samples, -1).contiguous()
    kind = data.group[data.edge[slots]].astype(int) + len(tables) * data.end[slots]
    for c in np.unique(kind):
        members = np.flatnonzero(kind == c)
        table = tables[c] if c < len(tables) else tables[c - len(tables)].mT  # (F, here, there)
        features = edge_features(data, images, slots[members])[:, :, None, :, None]
        labels = torch.nn.functional.one_hot(around[:, on_device(members)].long() + 1, n_labels + 1)[..., 1:]
        spread = (features * labels[:, :, :, None]).flatten(3)  # (n, members, M, F · L)
        scores = scores.index_add(1, on_device(row[members]), spread @ table.mT.flatten(0, 1))
    return scores


def add_slopes(
    loss: torch.Tensor,
    weights: torch.Tensor,
    tables: torch.Tensor,
    value: Array,
    slope: Array,
    table_slope: Array,
) -> None:
    """Add the loss and its derivatives by ``weights`` and ``tables`` to the NumPy arrays."""
    by_weights, by_tables = torch.autograd.grad(loss, (weights, tables), materialize_grads=True)
    value += loss.detach().cpu().numpy()
    slope += by_weights.cpu().numpy()
    table_slope += by_tables.cpu().numpy()


def parameters(weights: Array, tables: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and tables as tensors to differentiate by."""
    return on_device(weights).requires_grad_(), on_device(tables).requires_grad_()
