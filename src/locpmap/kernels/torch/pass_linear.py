"""Sum-product in the linear domain, all sites of a colour class at once; see the reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.torch.messages import received
from locpmap.kernels.torch.neighbours import Part, order_parts
from locpmap.kernels.torch.pass_messages import commit, sweep_while_marked
from locpmap.kernels.torch.scores import at_slots


def pass_linear(
    model: Model,
    order: Tensor,
    messages: Tensor,
    dirty: Tensor,
    linear: Tensor,
    weights: Tensor,
    couplings: Tensor,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
    n_sweeps: int = 1,
    ends: Any = None,
    grid: Any = None,
    undamped: int = 0,
    made: int = 0,
) -> Tensor:
    """Visit positions begin..stop of ``order`` in those images of lo..hi that are kept in the linear domain.

    Beyond the reference: at most ``n_sweeps`` times, and all else as in `pass_messages`.
    """
    said, marks, here = messages[lo:hi], dirty[lo:hi], linear[lo:hi, None]
    parts = order_parts(model, order, begin, stop, ends)

    def sweep(number: int) -> None:
        now = damping if number >= undamped else 0.0
        for part in parts:
            incoming = received(said, part, nothing=1.0)
            whole = weights[lo:hi, part.sites].to(said.dtype) * incoming.prod(dim=2)
            remaining = whole[:, :, None] / incoming
            share = remaining / remaining.sum(dim=3, keepdim=True)
            fresh = average(share, at_slots(couplings, model, part, lo, hi).to(said.dtype), model, part)
            old = said[:, model.reverse[part.slots].long()]
            fresh = fresh + now * (old - fresh)
            commit(model, part, said, marks, here, old, fresh, (fresh - old).abs() > tolerance * fresh)

    return sweep_while_marked(sweep, marks, here, order[begin:stop].long(), n_sweeps, made)


def average(share: Tensor, couplings: Tensor, model: Model, part: Part) -> Tensor:
    """The mean coupling of every label with a neighbour's, whose labels have these shares (n, P, D, L)."""
    if not model.potts:
        second = (model.end[part.slots] != 0)[:, :, None, None]
        return (share[..., None, :] @ torch.where(second, couplings.mT, couplings))[..., 0, :]
    label = torch.arange(share.shape[3], device=share.device)
    best = label == share.argmax(dim=3, keepdim=True)
    # Where one label has nearly everything, one minus its share cancels: the others' are added up.
    others = torch.where(best, torch.where(best, 0.0, share).sum(dim=3, keepdim=True), 1 - share)
    return couplings[..., 0, :1] * others + couplings[..., 0, 1:] * share
