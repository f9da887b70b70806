"""The score of a labelling, site by site; see the reference."""

from __future__ import annotations

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.torch.neighbours import class_parts
from locpmap.kernels.torch.scores import local_scores, pair_terms


def score_terms(
    model: Model, labels: torch.Tensor, terms: torch.Tensor, lo: int, hi: int, begin: int, stop: int
) -> None:
    """Fill ``terms`` (N, S): each site's unary score and the scores of the edges that begin there; labels (N, S)."""
    for part in class_parts(model, begin, stop):
        pairs = pair_terms(model, part, lo, hi)
        begins = (model.end[part.slots] == 0) & part.real
        pairs = torch.where(begins if pairs.ndim == 3 else begins[:, :, None, None], pairs, 0.0)
        unary = model.unary[lo:hi, part.sites, :, None].to(terms.dtype)
        scores = local_scores(unary, labels[lo:hi, :, None], part.neighbour, pairs)[..., 0]
        terms[lo:hi, part.sites] = scores.gather(2, labels[lo:hi, part.sites].long()[:, :, None])[:, :, 0]
