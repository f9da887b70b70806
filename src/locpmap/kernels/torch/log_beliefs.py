"""What each site believes, given the messages; see the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.torch.messages import appearances, belief, received
from locpmap.kernels.torch.neighbours import class_parts


def log_beliefs(
    model: Model,
    messages: Tensor,
    rho: Tensor | None,
    beliefs: Tensor,
    normalisers: Tensor,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Fill ``beliefs`` (N, S, L), and ``normalisers`` (N, S) with what normalising took from them."""
    for part in class_parts(model, begin, stop):
        unary = model.unary[lo:hi, part.sites].to(beliefs.dtype)
        incoming = received(messages[lo:hi], part).to(beliefs.dtype)
        whole = belief(unary, incoming, appearances(model, part, rho, beliefs.dtype))
        stuck = whole.amax(dim=2, keepdim=True) == -torch.inf
        whole = torch.where(stuck, unary, whole)
        top = whole.amax(dim=2, keepdim=True)
        # The largest goes first: next to scores of 1e12 and more, the logarithm of a sum is lost in rounding.
        log_sum = (whole - top).logsumexp(dim=2, keepdim=True)
        beliefs[lo:hi, part.sites] = whole - top - log_sum
        normalisers[lo:hi, part.sites] = torch.where(stuck, -torch.inf, top + log_sum)[:, :, 0].to(normalisers.dtype)
