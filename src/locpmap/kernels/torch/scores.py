"""Pairwise terms of sites and their neighbours, and the local scores that they add up to."""

from __future__ import annotations

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.torch.neighbours import Part


def pair_terms(model: Model, part: Part, lo: int, hi: int) -> torch.Tensor:
    """The pairwise terms of images lo..hi at the part's slots, 0 where a list is shorter.

    Of a Potts model the weights (1|n, P, D), else tables (1|n, P, D, L, L) with the label of the part's site first.
    """
    features = at_slots(model.features, model, part, lo, hi)
    if model.potts:
        return torch.where(part.real, features[..., 0], 0.0)
    tables = at_slots(model.tables, model, part, lo, hi)
    n_features = features.shape[3]
    scores = sum(features[..., f, None, None] * tables[..., f, :, :] for f in range(n_features))
    assert isinstance(scores, torch.Tensor)
    second = (model.end[part.slots] != 0)[:, :, None, None]
    return torch.where(part.real[:, :, None, None], torch.where(second, scores.mT, scores), 0.0)


def at_slots(terms: torch.Tensor, model: Model, part: Part, lo: int, hi: int) -> torch.Tensor:
    """Terms (1|N, 1|E, ..) of images lo..hi and the edges at the part's slots, (1|n, P|1, D|1, ..)."""
    terms = terms[lo:hi] if len(terms) > 1 else terms
    return terms[:, model.edge[part.slots].long()] if terms.shape[1] > 1 else terms[:, :, None]


def local_scores(
    scores: torch.Tensor, labels: torch.Tensor, neighbour: torch.Tensor, terms: torch.Tensor
) -> torch.Tensor:
    """``scores`` (n, P, L, R) of sites plus the pairwise scores of their labels with the neighbours' labels.

    ``labels`` (n, S, R) of any integer type, ``neighbour`` (P, D), ``terms`` as :func:`pair_terms` makes them.
    """
    for d, others in enumerate(neighbour.unbind(1)):
        label = labels[:, others].long()[:, :, None]  # (n, P, 1, R)
        if terms.ndim == 3:
            scores = scores.scatter_add(2, label, terms[:, :, d, None, None].expand_as(label).to(scores.dtype))
        else:
            table = terms[:, :, d].expand(len(label), -1, -1, -1)
            scores = scores + table.gather(3, label.expand(-1, -1, table.shape[2], -1)).to(scores.dtype)
    return scores
