"""Conditional (Rao-Blackwell) probabilities, added up in whole numbers of 2^-40; see the reference."""

from __future__ import annotations

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.reference.conditionals import UNIT
from locpmap.kernels.torch.neighbours import site_parts
from locpmap.kernels.torch.scores import local_scores, pair_terms


def conditionals(model: Model, labels: torch.Tensor, sums: torch.Tensor, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` of images lo.. and sites begin..stop; labels (n, S, R), sums (n, S, L) int64.

    Nothing is added before all is known: who runs out of memory can try again with fewer sites.
    """
    hi, n_samples = lo + len(labels), labels.shape[2]
    label = torch.arange(sums.shape[2], device=sums.device)[:, None]
    parts, added = site_parts(model, begin, stop), []
    for part in parts:
        unary = model.unary[lo:hi, part.sites, :, None].expand(-1, -1, -1, n_samples)
        scores = local_scores(unary, labels, part.neighbour, pair_terms(model, part, lo, hi))
        # Where hard pairs leave a site no label, the sample's own has to do.
        stuck = scores.amax(dim=2, keepdim=True) == -torch.inf
        scores = torch.where(stuck & (label == labels[:, part.sites, None]), 0.0, scores)
        added.append((scores.softmax(dim=2) * UNIT).round().long().sum(dim=3))
    for part, more in zip(parts, added, strict=True):
        sums.index_add_(1, part.sites, more)
