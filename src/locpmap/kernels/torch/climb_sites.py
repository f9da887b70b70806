"""Coloured ICM on perturbed unaries: any graph, any table; see the reference.  All samples climb at once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.torch.neighbours import class_parts
from locpmap.kernels.torch.perturbing import begin, perturb
from locpmap.kernels.torch.scores import local_scores, pair_terms


def climb_sites(
    model: Model,
    perturbation: Perturbation,
    start: int,
    given: torch.Tensor,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Climb for images lo..hi and samples ``first_sample ..``; fills ``labels`` (hi - lo, S, R).

    Returns the number of the last sweep that changed anything, (hi - lo, R).
    """
    unary, key = model.unary[lo:hi], (first_image + lo, first_sample)
    scores = perturb(unary, model.site_id, perturbation, *key, labels.shape[2])
    begin(unary, scores, model.site_id, perturbation, start, given[lo:hi], *key, labels)
    classes = [
        Class(part.sites, part.neighbour, pair_terms(model, part, lo, hi), scores[:, part.sites])
        for part in class_parts(model, 0, len(model.order))
    ]
    del scores  # the classes have copies
    return climb(classes, labels, max_sweeps)


class Class(NamedTuple):
    """P sites that do not touch, and all that their updates read besides labels."""

    sites: torch.Tensor  # (P,)
    neighbour: torch.Tensor  # (P, D)
    terms: torch.Tensor  # see `pair_terms`
    scores: torch.Tensor  # (n, P, L, R) perturbed unaries


def climb(classes: list[Class], labels: torch.Tensor, max_sweeps: int) -> torch.Tensor:
    """Sweep until nothing changes; labels (n, S, R) are changed in place.  Returns each sample's last sweep (n, R)."""
    last = torch.zeros((len(labels), labels.shape[2]), dtype=torch.int32, device=labels.device)
    for sweep in range(1, max_sweeps + 1):
        changed = torch.zeros_like(last, dtype=torch.bool)
        for sites, *rest in classes:
            held = labels[:, sites]
            taken = best_labels(held, labels, *rest)
            labels[:, sites] = taken
            changed |= (taken != held).any(dim=1)
        last = torch.where(changed, sweep, last)
        if not changed.any():
            break
    return last


def best_labels(
    held: torch.Tensor, labels: torch.Tensor, neighbour: torch.Tensor, terms: torch.Tensor, scores: torch.Tensor
) -> torch.Tensor:
    """The labels (n, P, R) that sites take which hold ``held``: the smallest best one, or their own where that is."""
    total = local_scores(scores, labels, neighbour, terms)
    top, best = total.max(dim=2)
    kept = total.gather(2, held.long()[:, :, None])[:, :, 0]
    return torch.where(top > kept, best.to(held.dtype), held)
