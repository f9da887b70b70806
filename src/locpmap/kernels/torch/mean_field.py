"""Mean field, all marked sites of a colour class at once; see the reference.  Sums are made in the beliefs' type."""

from __future__ import annotations

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.reference.mean_field import FORBIDDEN
from locpmap.kernels.reference.messages import CHANGED
from locpmap.kernels.torch.neighbours import Part, class_parts
from locpmap.kernels.torch.scores import pair_terms


def mean_field(
    model: Model,
    beliefs: torch.Tensor,
    dirty: torch.Tensor,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
    n_sweeps: int = 1,
) -> torch.Tensor:
    """Update images lo..hi at positions begin..stop of the model's order; beliefs (N, S, L), dirty (N, S).

    Beyond the reference: up to ``n_sweeps`` sweeps are made, and one that finds no mark is the last.  Returns how many
    found any, a tensor of one number.
    """
    q, marks = beliefs[lo:hi], dirty[lo:hi]
    parts = [(part, pair_terms(model, part, lo, hi).to(q.dtype)) for part in class_parts(model, begin, stop)]
    made = 0
    while made < n_sweeps and marks[:, model.order[begin:stop].long()].any():
        for part, terms in parts:
            mark, old = marks[:, part.sites], q[:, part.sites]
            unary = model.unary[lo:hi, part.sites].to(q.dtype)
            fresh = expected_scores(unary, q, part.neighbour, terms).softmax(dim=2)
            moved = (mark > 0) & ((mark > CHANGED) | ((fresh - old).abs() > tolerance).any(dim=2))
            q[:, part.sites] = torch.where(moved[:, :, None], fresh, old)
            marks[:, part.sites] = 0
            mark_neighbours(marks, part, moved[:, :, None])
        made += 1
    return torch.tensor([made])


def expected_scores(
    unary: torch.Tensor, beliefs: torch.Tensor, neighbour: torch.Tensor, terms: torch.Tensor
) -> torch.Tensor:
    """Unaries (n, P, L) and the expected pairwise scores given the neighbours' beliefs (n, S, L)."""
    scores = unary
    for d, others in enumerate(neighbour.unbind(1)):
        theirs = beliefs[:, others]
        if terms.ndim == 3:
            scores = scores + terms[:, :, d, None] * theirs
        else:
            table = torch.where(terms[:, :, d] > -torch.inf, terms[:, :, d], FORBIDDEN)
            scores = scores + (table @ theirs[..., None])[..., 0]
    return scores


def mark_neighbours(dirty: torch.Tensor, part: Part, changed: torch.Tensor) -> None:
    """Mark the sites (n, S) at those slots (n, P, 1|D) that brought them something new to read."""
    counts = torch.zeros(dirty.shape, dtype=torch.int32, device=dirty.device)
    counts.index_add_(1, part.neighbour.flatten(), (changed & part.real).flatten(1).int())
    dirty |= torch.where(counts > 0, CHANGED, 0).to(dirty.dtype)
