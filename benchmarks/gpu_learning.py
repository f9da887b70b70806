"""Time of the pseudolikelihood's gradient on a GPU, compared with a copy of the data that it reads."""

from typing import Any

import numpy as np
import torch

from benchmarks.gpu_clock import measure, queued
from benchmarks.learning import data
from locpmap.features import ImageFeatures
from locpmap.kernels.likelihood import Scores
from locpmap.kernels.triton.backend import TritonKernels

COPIES = {"5,000 digits": 1, "50,000 digits": 10}  # the second is much larger than any cache


def gradient_rows(copy_gb_per_s: float, seed: int) -> dict[str, dict[str, Any]]:
    """Time value and gradient of a model with 2 labels, intensity, and constant and difference tables on all edges.

    The bytes moved are those of site features, edge features and labels, each read once from memory with cold caches.
    Labels are read as codes of the same size, which the first call of a fit computes and caches; this is not timed. The
    time is compared with a copy that moves the same number of bytes, and with their transfer at full speed. A copy of
    small data is too short to reach full speed.
    """
    images, labels = data(5000, seed)
    rows = {}
    for name, copies in COPIES.items():
        call, moved = _gradient(np.tile(images, (copies, 1, 1)), np.tile(labels, (copies, 1, 1)))
        milliseconds = queued(call, cold=True)
        rows[name] = {
            "milliseconds": milliseconds,
            "wall": measure(call).wall,
            "megabytes_moved": moved / 1e6,
            "gb_per_s": moved / milliseconds / 1e6,
            "times_a_copy": milliseconds / _copy(moved),
            "times_full_speed": milliseconds * copy_gb_per_s * 1e6 / moved,
        }
    return rows


def _copy(n_bytes: int) -> float:
    """Return the milliseconds of a copy whose reads and writes sum to ``n_bytes``, with a cold cache."""
    source, target = (torch.zeros(n_bytes // 8, device="cuda") for _ in range(2))
    return queued(lambda: target.copy_(source), cold=True)


def _gradient(images: np.ndarray, labels: np.ndarray) -> tuple[Any, int]:
    """Return a function that computes the gradient, and the number of bytes that it reads."""
    features = ImageFeatures()(images)
    true = torch.tensor(labels.reshape(len(labels), -1).astype(np.int16)).cuda()
    rng = np.random.default_rng(0)
    unary, pairwise = torch.tensor(features.unary).cuda(), torch.tensor(features.pairwise).cuda()
    weights, tables = (torch.tensor(rng.normal(size=size)).cuda().to(unary.dtype) for size in ((1, 2), (1, 2, 2, 2, 2)))
    wiring = tuple(torch.tensor(part).cuda() for part in features.wiring(False))
    of_sites, kernels = unary.new_ones(1, 1), TritonKernels("cuda")

    def call() -> None:
        scores = Scores(unary @ weights, pairwise, tables, False, False, *wiring)
        found = kernels.site_losses(scores, true, true[:, :, None], of_sites)
        kernels.pair_gradient(scores, true[:, :, None], found.residual)

    return call, unary.nbytes + pairwise.nbytes + true.nbytes
