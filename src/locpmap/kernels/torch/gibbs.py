"""One sweep of Gibbs sampling, all sites of a colour class at once; see the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.reference.gibbs import CONDITIONAL, VOTES
from locpmap.kernels.reference.noise import CHAIN
from locpmap.kernels.torch.neighbours import Part, class_parts
from locpmap.kernels.torch.noise import keys_of, uniform, words
from locpmap.kernels.torch.scores import local_scores, pair_terms


def gibbs(
    model: Model,
    labels: Tensor,
    totals: Tensor,
    adds: int,
    temperature: float,
    k0: int,
    k1: int,
    sweep: int,
    first_image: int,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
    n_sweeps: int = 1,
    cooling: float = 1.0,
    first_counted: int = 0,
    thin: int = 1,
    kept: Tensor | None = None,
) -> None:
    """Update images lo..hi at positions begin..stop of the model's order; labels (N, S), totals (N, S, L).

    Beyond the reference: sweeps ``sweep``, ``sweep + 1``, .. are made, ``n_sweeps`` of them, each ``cooling`` times
    as hot as the last.  Of these, numbers ``first_counted``, ``first_counted + thin``, .. add to the totals, and what
    they end with is stored in ``kept`` (K, N, S), first come first.
    """
    room = [] if kept is None else list(kept)
    parts = [(part, pair_terms(model, part, lo, hi)) for part in class_parts(model, begin, stop)]
    for number in range(sweep, sweep + n_sweeps):
        counts = number >= first_counted and (number - first_counted) % thin == 0
        call = torch.tensor([number], device=labels.device)
        for part, terms in parts:
            keys = keys_of(k0, k1, first_image + lo, hi - lo, model.site_id[part.sites])
            u = uniform(words(keys, CHAIN, call)[0], model.unary.dtype)
            p = draw_class(model.unary[lo:hi], labels[lo:hi], part, terms, float(temperature), u)
            if counts and adds == VOTES:
                totals[lo:hi, part.sites] += one_hot(labels[lo:hi, part.sites], p)
            elif counts and adds == CONDITIONAL:
                totals[lo:hi, part.sites] += p
        if counts and room:
            room.pop(0)[lo:hi] = labels[lo:hi]
        temperature *= cooling


def draw_class(unary: Tensor, labels: Tensor, part: Part, terms: Tensor, temperature: float, u: Tensor) -> Tensor:
    """Draw the labels of the part's sites, in place, with uniforms (n, P, 1); returns their probabilities (n, P, L).

    A site all of whose labels are forbidden by its neighbours keeps the one it has.
    """
    scores = local_scores(unary[:, part.sites, :, None], labels[:, :, None], part.neighbour, terms)[..., 0]
    possible = scores.amax(dim=2, keepdim=True) > -torch.inf
    drawn, p = draw(scores, temperature, u)
    held = labels[:, part.sites]
    labels[:, part.sites] = torch.where(possible[:, :, 0], drawn[:, :, 0].to(held.dtype), held)
    return torch.where(possible, p, one_hot(held, p))


def one_hot(labels: Tensor, like: Tensor) -> Tensor:
    """1 at the labels (n, P) and 0 elsewhere, (n, P, L)."""
    return torch.zeros_like(like).scatter_(2, labels.long()[:, :, None], 1.0)


def draw(scores: Tensor, temperature: float, u: Tensor) -> tuple[Tensor, Tensor]:
    """Labels (n, P, 1) drawn from local scores (n, P, L) with uniforms (n, P, 1), and their probabilities (n, P, L).

    Sums of a scan are rounded each in its own way, so they may grow where a weight is 0, or not reach the total.
    """
    # Not so cold that single precision takes it for 0: a gap of 0 stays one.
    weights = ((scores - scores.amax(dim=2, keepdim=True)) / max(temperature, 1e-30)).exp()
    total = weights.sum(dim=2, keepdim=True)
    label = torch.arange(scores.shape[2], device=scores.device)
    likely = weights > 0
    passed = likely & (weights.cumsum(dim=2) > u * total)
    first = torch.where(passed, label, len(label)).amin(dim=2, keepdim=True)
    return torch.minimum(first, torch.where(likely, label, 0).amax(dim=2, keepdim=True)), weights / total
