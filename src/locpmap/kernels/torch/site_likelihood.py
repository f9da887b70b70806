"""Negative log conditionals of sites and their slopes in tensors; see the reference for the definition.

Only the value is written down: the slopes are its derivatives by reverse differentiation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from locpmap.kernels.observations import Observations
from locpmap.kernels.torch.linear_scores import add_slopes, chunks, local_scores, parameters, slots_of
from locpmap.kernels.torch.placement import on_device

Array = npt.NDArray[Any]


def site_likelihood(
    data: Observations,
    labels: Array,
    samples: Array,
    site_weights: Array,
    weights: Array,
    tables: Array,
    value: Array,
    slope: Array,
    table_slope: Array,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and sites begin..stop."""
    n_samples, n_labels = samples.shape[2], weights.shape[1]
    u, t = parameters(weights, tables)
    sites = np.arange(begin, stop)
    slots, row = slots_of(data, sites)
    neighbour = on_device(data.neighbour[slots]).long()
    everywhere = np.broadcast_to(site_weights, labels.shape)
    for images in chunks(lo, hi, (len(slots) + len(sites)) * n_samples * n_labels * tables.shape[1]):
        scores = local_scores(data, images, sites, slots, row, on_device(samples[images])[:, neighbour], u, t)
        true = on_device(labels[images, begin:stop]).long()
        pick = true.clamp(min=0)[:, :, None, None].expand(-1, -1, n_samples, 1)
        log_p = scores.log_softmax(3).gather(3, pick)[..., 0]  # (n, sites, M)
        loss = np.log(n_samples) - log_p.logsumexp(2)
        importance = on_device(everywhere[images, begin:stop])
        total = torch.where(true >= 0, importance * loss, 0.0).sum()
        add_slopes(total, u, t, value, slope, table_slope)
