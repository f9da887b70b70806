"""Loss and gradient of the log-linear model: the likelihood kernels between two matrix products.

The scores of sites are ``features · weights``. The gradient in the weights is the transposed features times the
gradient in the scores. Images are processed in groups to bound memory. The groups and the order of summation depend on
the data only, so results do not depend on the number of threads.
"""

from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from operator import add
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, cast, current_device, is_tensor, namespace
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.cache import placed, placed_once
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.likelihood import JOB_SITES, Losses, Scores
from locpmap.kernels.threads import Threads
from locpmap.learning.batches import Batch

GPU_SCORES = 1 << 26  # pairwise scores of one group on a GPU
CPU_GROUPS, GPU_GROUPS = 16, 1 << 12  # groups per thread whose sums are in memory simultaneously
ONE_THREAD = Threads(1)
ROWS = 1 << 15  # rows of features that are converted to double precision and squared together


class Sums(NamedTuple):
    """Loss summed over sites and images, and its gradients."""

    value: float
    by_weights: Array  # (D + 1, L)
    by_tables: Array  # (G, F, L, L)


def sums_of_groups(
    batch: Batch,
    weights: Array,
    tables: Array,
    kernels: Any,
    *,
    plan: BlockPlan | None = None,
    samples: Array | None = None,
    contrastive: bool = False,
    one_by_one: bool = False,
) -> Iterator[Sums]:
    """Yield the loss and its gradients for each group of images in order, or for each image with ``one_by_one``.

    With a plan this is the composite likelihood of its blocks. Otherwise it is the loss of single sites given
    ``samples`` (N, S, M) of their neighbours, which default to the true labels. If ``contrastive``, it is the mean
    score of the samples minus that of the true labels, whose gradients are the differences of mean features.
    """
    device, on_cpu = kernels.device, kernels.device is None
    n_images, n_sites = batch.labels.shape
    data = (batch.features.unary, batch.features.pairwise, batch.labels, batch.site_weights)
    rows, features, labels, site_weights = (placed_once(array, device) for array in data)
    wiring = tuple(placed_once(array, device) for array in batch.features.wiring(len(tables) == 1))
    near = labels[:, :, None] if samples is None else placed(samples, device)
    placed_weights, placed_tables = placed(weights, device), placed(tables, device)
    # Small images: one thread per group. Large images: all threads within a group.
    by_groups = on_cpu and n_sites <= JOB_SITES
    inner = CpuKernels(kernels.name) if by_groups else kernels
    outer = kernels.threads if by_groups else ONE_THREAD

    def group(lo: int, hi: int) -> Any:
        x = with_ones(rows[lo:hi])
        unary = (x @ cast(placed_weights, x.dtype)).reshape(hi - lo, n_sites, -1)
        z = features[lo:hi] if len(features) > 1 else features
        scores = Scores(unary, z, cast(placed_tables, x.dtype)[None], False, False, *wiring)
        importance = site_weights[lo:hi] if len(site_weights) > 1 else site_weights
        if contrastive:
            value, residual, gradient = score_differences(inner, scores, labels[lo:hi], near[lo:hi], importance)
        elif plan is not None:
            value, residual, gradient = inner.block_losses(scores, plan, labels[lo:hi], importance[:, 0])
        else:
            value, residual, _ = inner.site_losses(scores, labels[lo:hi], near[lo:hi], importance)
            gradient = inner.pair_gradient(scores, near[lo:hi], residual)
        by_unary = residual[:, :, 0] if residual.shape[2] == 1 else residual.sum(2)
        by_weights = cast(x, "float64").T @ cast(by_unary, "float64").reshape(len(x), -1)
        sums = (cast(value, "float64").sum()[None], by_weights.ravel(), gradient.ravel())
        return namespace(value).concatenate(sums)

    most = JOB_SITES if on_cpu else max(1, GPU_SCORES // weights.shape[1] ** 2)
    images = 1 if one_by_one else max(1, most // n_sites)
    groups = [(lo, min(lo + images, n_images)) for lo in range(0, n_images, images)]
    at_a_time = (CPU_GROUPS if on_cpu else GPU_GROUPS) * outer.n_threads
    cut = 1 + weights.size
    for first in range(0, len(groups), at_a_time):
        with current_device(labels):
            sums = on_host(outer.map(group, groups[first : first + at_a_time]))
        for row in sums:
            yield Sums(float(row[0]), row[1:cut].reshape(weights.shape), row[cut:].reshape(tables.shape))


def score_differences(kernels: Any, scores: Scores, labels: Any, samples: Any, weights: Any) -> Losses:
    """Return the mean score of samples (N, S, M) minus the score of the labels (N, S), and its derivatives."""
    unary, xp = scores.unary, namespace(scores.unary)
    both = xp.concatenate([samples, labels[:, :, None]], axis=2)
    chosen = both[..., None] == xp.arange(unary.shape[2], device=unary.device)  # nothing at void sites
    factor = xp.full((both.shape[2], 1), 1 / samples.shape[2], dtype=unary.dtype, device=unary.device)
    factor[-1] = -1
    residual = chosen * factor * cast(weights, unary.dtype)[:, :, None, None]
    gradient = kernels.pair_gradient(scores, both, residual) / 2  # every edge has two ends
    return Losses((unary * residual.sum(2)).sum() + (scores.tables * gradient).sum(), residual, gradient)


def total(groups: Iterator[Sums]) -> Sums:
    """Return the sum over all groups."""
    return reduce(lambda sums, more: Sums(*map(add, sums, more)), groups)


def mean_square(features: Array, weights: Array) -> Array:
    """Return the weighted mean square, (D,), of features (1|N, 1|S, D) with weights (1|N, 1|S)."""
    # In double precision: the optimiser's steps depend on it, and must not depend on the number of processes.
    if weights.size == 1:
        flat, squares = features.reshape(-1, features.shape[2]), np.zeros(features.shape[2])
        with np.errstate(over="ignore"):  # read_dataset rejects infinite scales
            for first in range(0, len(flat), ROWS):
                some = flat[first : first + ROWS].astype(np.float64)
                squares += np.einsum("nd,nd->d", some, some)
        squares *= weights[0, 0]
    else:
        squares = np.einsum("ns,nsd,nsd->d", weights, features, features, dtype=np.float64)
    return squares / (max(len(weights), len(features)) * max(weights.shape[1], features.shape[1], 1))


def with_ones(features: Any) -> Any:
    """Return features (n, S, D) as a matrix (n · S, D + 1) whose last column is 1; NumPy arrays become double."""
    if is_tensor(features):
        rows = features.flatten(0, 1)
        return import_module("torch").cat([rows, rows.new_ones(len(rows), 1)], 1)
    matrix = np.ones((features.shape[0] * features.shape[1], features.shape[2] + 1))
    matrix[:, :-1] = features.reshape(len(matrix), -1)
    return matrix


def on_host(rows: list[Any]) -> list[Array]:
    """Return the sums of groups as NumPy arrays, copied from a device with one synchronisation."""
    return list(import_module("torch").stack(rows).cpu().numpy()) if is_tensor(rows[0]) else rows
