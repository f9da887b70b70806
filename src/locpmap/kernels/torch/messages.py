"""Messages along the edges of a part's sites, all at once; see the reference for the definitions.

Tensors are (n, P, D, L): images, sites, slots of their neighbour lists, labels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.torch.neighbours import Part
from locpmap.kernels.torch.scores import pair_terms


def received(messages: Tensor, part: Part, nothing: float = 0.0) -> Tensor:
    """The messages (n, 2E, L) into the part's sites; ``nothing`` where a list is shorter."""
    return torch.where(part.real[:, :, None], messages[:, part.slots], nothing)


def appearances(model: Model, part: Part, rho: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The edges' ρ at the part's slots, (P, D); 1 everywhere where it is None."""
    if rho is None:
        return torch.ones(part.slots.shape, dtype=dtype, device=part.slots.device)
    return torch.where(part.real, rho.to(dtype)[model.edge[part.slots].long()], 1.0)


def belief(unary: Tensor, incoming: Tensor, rho: Tensor) -> Tensor:
    """(n, P, L), of unaries of that shape; ρ (P, D)."""
    return unary.to(incoming.dtype) + (rho[:, :, None] * incoming).sum(dim=2)


def cavity(belief: Tensor, message: Tensor) -> Tensor:
    """A belief without what one neighbour said."""
    return torch.where(message == -torch.inf, -torch.inf, belief - message)


def send(cavity: Tensor, terms: Tensor, maximise: bool) -> tuple[Tensor, Tensor]:
    """The message through each slot's pairwise term, and what normalising took from it, (n, P, D).

    Terms are Potts weights (1|n, P, D) or tables (1|n, P, D, L, L) as `pair_terms` makes them.
    """
    add = torch.amax if maximise else torch.logsumexp
    total = add(cavity, 3, keepdim=True)
    silent = total == -torch.inf
    share = torch.where(silent, 0.0, cavity - total)  # log q
    if terms.ndim == 3:
        weight = terms[..., None]
        shift = weight.clamp(min=0)
        fresh = combine(maximise, all_but_one(share, maximise), share + weight)
    else:
        shift = terms.amax(dim=(3, 4))[..., None]
        shift = torch.where(shift == -torch.inf, 0.0, shift)
        fresh = add(share[..., None] + terms, 3)
    return torch.where(silent, 0.0, fresh - shift), (total + shift)[..., 0]


def all_but_one(share: Tensor, maximise: bool) -> Tensor:
    """What all labels but one hold together, for each, of logarithms (.., L) of shares.

    For the largest it is added up: where that has nearly everything, one minus its share cancels.
    """
    label = torch.arange(share.shape[-1], device=share.device)
    best = label == share.argmax(dim=-1, keepdim=True)
    rest = torch.where(best, -torch.inf, share)
    if maximise:
        return torch.where(best, rest.amax(dim=-1, keepdim=True), 0.0)
    return torch.where(best, rest.logsumexp(dim=-1, keepdim=True), torch.log1p(-share.exp()))


def combine(maximise: bool, first: Tensor, second: Tensor) -> Tensor:
    """``log(exp a + exp b)``, or the larger."""
    return torch.maximum(first, second) if maximise else torch.logaddexp(first, second)


def mix(old: Tensor, fresh: Tensor, damping: float, maximise: bool) -> Tensor:
    """A damped message; what is forbidden is so at once."""
    if damping == 0:
        return fresh
    free = (fresh > -torch.inf) & (old > -torch.inf)
    if maximise:
        mixed = damping * old + (1 - damping) * fresh
    else:
        mixed = torch.logaddexp(math.log(damping) + old, math.log1p(-damping) + fresh)
    return torch.where(free, mixed, fresh)


def terms_of(model: Model, part: Part, rho: Tensor, lo: int, hi: int) -> Tensor:
    """``θ_e / ρ_e`` at the part's slots, as `pair_terms` has them; ρ (P, D)."""
    terms = pair_terms(model, part, lo, hi).to(rho.dtype)
    return terms / (rho if terms.ndim == 3 else rho[:, :, None, None])


def store(messages: Tensor, model: Model, part: Part, fresh: Tensor) -> None:
    """Write what the part's sites send, (n, P, D, L), where their neighbours read it."""
    there = model.reverse[part.slots].long().flatten()[part.listed]
    messages[:, there] = fresh.flatten(1, 2)[:, part.listed]
