"""The edges' part of the Bethe approximation of log Z; see the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.torch.messages import cavity, received, send
from locpmap.kernels.torch.neighbours import class_parts
from locpmap.kernels.torch.scores import pair_terms


def bethe_edges(
    model: Model, messages: Tensor, beliefs: Tensor, terms: Tensor, lo: int, hi: int, begin: int, stop: int
) -> None:
    """Fill ``terms`` (N, S) with the sum over the edges that begin at each site; beliefs (N, S, L) are logarithms."""
    for part in class_parts(model, begin, stop):
        own, theirs = beliefs[lo:hi, part.sites, None], beliefs[lo:hi, part.neighbour]
        here = cavity(own, received(messages[lo:hi], part).to(beliefs.dtype))
        there = cavity(theirs, messages[lo:hi, model.reverse[part.slots].long()].to(beliefs.dtype))
        message, taken = send(here, pair_terms(model, part, lo, hi).to(beliefs.dtype), maximise=False)
        total = (message + there).logsumexp(dim=3) + taken
        begins = (model.end[part.slots] == 0) & part.real
        terms[lo:hi, part.sites] = torch.where(begins, total, 0.0).sum(dim=2).to(terms.dtype)
