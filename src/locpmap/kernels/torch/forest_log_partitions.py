"""log Z of spanning forests under the reparametrised scores, one level of all forests at a time; see the reference."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locpmap.arrays import to_numpy
from locpmap.kernels.model import Model
from locpmap.kernels.torch.messages import appearances, belief, cavity, received, send, terms_of
from locpmap.kernels.torch.neighbours import Part, site_parts


def forest_log_partitions(
    model: Model,
    messages: Tensor,
    rho: Tensor,
    orders: Any,
    parents: Any,
    values: Tensor,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Fill ``values[n, t]`` (N, K) for images lo..hi and forests begin..stop; orders and parents (K, S)."""
    said, device = messages[lo:hi], messages.device
    apart = torch.empty_like(model.unary[lo:hi], dtype=messages.dtype)  # beliefs before anything is sent
    for part in site_parts(model, 0, apart.shape[1]):
        shares = appearances(model, part, rho, messages.dtype)
        apart[:, part.sites] = belief(model.unary[lo:hi, part.sites], received(said, part), shares)
    neighbour, n_sites = model.neighbour.cpu().numpy(), apart.shape[1]
    parent = np.stack([to_numpy(parents[t], "parents") for t in range(begin, stop)])
    depth = np.stack([depths(to_numpy(orders[t], "orders"), parent[t - begin], neighbour) for t in range(begin, stop)])
    by_depth = np.argsort(depth.ravel(), kind="stable")
    place = torch.from_numpy(by_depth).to(device)  # forest · S + site
    slots = torch.from_numpy(parent.ravel()[by_depth].astype(np.int64)).to(device)
    ends = np.cumsum(np.bincount(depth.ravel())).tolist()
    whole, total = apart.repeat(1, stop - begin, 1), values.new_zeros((hi - lo, stop - begin))
    for first, last in reversed(list(pairwise(ends))):
        here = place[first:last]
        up, sent, taken = rise(model, said, whole[:, here], rho, slots[first:last], lo, hi)
        whole.index_add_(1, here // n_sites * n_sites + up, sent)
        total.index_add_(1, here // n_sites, taken.to(total.dtype))
    roots = place[: ends[0]]
    total.index_add_(1, roots // n_sites, whole[:, roots].logsumexp(dim=2).to(total.dtype))
    values[lo:hi, begin:stop] = total


def rise(
    model: Model, messages: Tensor, whole: Tensor, rho: Tensor, slots: Tensor, lo: int, hi: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What sites of beliefs ``whole`` (n, P, L) send through slots (P,): to whom (P,), what, what it took (n, P)."""
    up = model.neighbour[slots].long()
    part = Part(slots, slots[:, None], torch.ones_like(slots, dtype=torch.bool)[:, None], up[:, None], slots)
    terms = terms_of(model, part, appearances(model, part, rho, messages.dtype), lo, hi)
    fresh, taken = send(cavity(whole, messages[:, slots])[:, :, None], terms, maximise=False)
    return up, cavity(fresh[:, :, 0], messages[:, model.reverse[slots].long()]), taken[:, :, 0]


def depths(order: Any, parent: Any, neighbour: Any) -> np.ndarray:
    """How far each site is from its root, (S,)."""
    depth = [0] * len(order)
    for site in order.tolist():
        if parent[site] >= 0:
            depth[site] = depth[neighbour[parent[site]]] + 1
    return np.array(depth)
