"""A labelling from max-product messages; see the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.torch.messages import received
from locpmap.kernels.torch.neighbours import order_parts
from locpmap.kernels.torch.scores import pair_terms


def decode_messages(model: Model, order: Tensor, messages: Tensor, labels: Tensor, lo: int, hi: int) -> None:
    """Fill ``labels`` (N, S) of images lo..hi in the given order; messages (N, 2E, L)."""
    y = torch.full_like(labels[lo:hi], -1, dtype=torch.int64)
    each = torch.arange(messages.shape[2], device=labels.device)
    for part in order_parts(model, order, 0, len(order)):
        unary = model.unary[lo:hi, part.sites].to(messages.dtype)
        terms = pair_terms(model, part, lo, hi).to(messages.dtype)
        label = y[:, part.neighbour, None]  # (n, P, D, 1); where a list is shorter, message and terms are 0
        if model.potts:
            actual = torch.where(each == label, terms[..., None], 0.0)
        else:
            column = label.clamp(min=0)[..., None].expand(-1, -1, -1, len(each), -1)
            actual = terms.expand(len(label), -1, -1, -1, -1).gather(4, column)[..., 0]
        scores = unary + torch.where(label < 0, received(messages[lo:hi], part), actual).sum(dim=2)
        stuck = scores.amax(dim=2, keepdim=True) == -torch.inf
        y[:, part.sites] = torch.where(stuck, unary, scores).argmax(dim=2)
    labels[lo:hi] = y.to(labels.dtype)
