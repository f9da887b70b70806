"""The lower bound that mean field climbs, term by term; see the reference."""

from __future__ import annotations

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.torch.neighbours import class_parts
from locpmap.kernels.torch.scores import pair_terms


def mean_field_bound(
    model: Model, beliefs: torch.Tensor, terms: torch.Tensor, lo: int, hi: int, begin: int, stop: int
) -> None:
    """Fill ``terms`` (N, S): each site's own part and that of the edges that begin there; beliefs (N, S, L)."""
    for part in class_parts(model, begin, stop):
        q, unary = beliefs[lo:hi, part.sites], model.unary[lo:hi, part.sites].to(beliefs.dtype)
        total = torch.where(q > 0, q * (unary - q.log()), 0.0).sum(dim=2)
        pairs = pair_terms(model, part, lo, hi).to(beliefs.dtype)
        begins = (model.end[part.slots] == 0) & part.real
        for d, others in enumerate(part.neighbour.unbind(1)):
            theirs = beliefs[lo:hi, others]
            if model.potts:
                gain = pairs[:, :, d] * (q * theirs).sum(dim=2)
            else:
                joint = q[..., None] * theirs[:, :, None]
                gain = torch.where(joint > 0, joint * pairs[:, :, d], 0.0).sum(dim=(2, 3))
            total = total + torch.where(begins[:, d], gain, 0.0)
        terms[lo:hi, part.sites] = total.to(terms.dtype)
