"""The sites that are visited together, with their neighbours side by side: what every operation here is made of."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch

from locpmap.kernels.model import Model

Array = npt.NDArray[Any]
SHORT = 8  # lists up to this length are padded to the same


class Part(NamedTuple):
    """P sites and the slots of their neighbour lists, padded to the longest list D; int64."""

    sites: torch.Tensor  # (P,)
    slots: torch.Tensor  # (P, D), 0 where a list is shorter
    real: torch.Tensor  # (P, D) bool: False there
    neighbour: torch.Tensor  # (P, D) the site at a slot
    listed: torch.Tensor  # (K,) the places of P · D that are real


Made = TypeVar("Made")
_kept: dict[tuple[Any, ...], tuple[weakref.ref[Any], Any]] = {}


def class_parts(model: Model, begin: int, stop: int) -> list[Part]:
    """Positions begin..stop of the model's order, cut where colour classes end."""
    bounds = [begin, *(c for c in model.class_ptr.tolist() if begin < c < stop), stop]
    classes = (model.order[a:b].long() for a, b in pairwise(bounds))
    return kept(model.order, (begin, stop), lambda: [part for sites in classes for part in parts_of(model, sites)])


def site_parts(model: Model, begin: int, stop: int) -> list[Part]:
    """Sites begin..stop, which may be neighbours of one another."""
    sites = torch.arange(begin, stop, device=model.indptr.device)
    return kept(model.indptr, (begin, stop), lambda: parts_of(model, sites))


def order_parts(model: Model, order: torch.Tensor, begin: int, stop: int, ends: Any = None) -> list[Part]:
    """Positions begin..stop of any order as parts to visit in turn: what comes out is as if one by one.

    Parts are colour classes, or what lies between ``ends``, or else as large as neighbours allow.
    """
    if order is model.order:
        return class_parts(model, begin, stop)

    def cut() -> list[Part]:
        sites = order[begin:stop].cpu().numpy()
        if ends is None:
            turn = turns(sites[:, None].tolist(), model.indptr.cpu().numpy(), model.neighbour.cpu().numpy())
        else:
            turn = np.searchsorted(np.asarray(ends), np.arange(begin, stop), side="right")
        together = (torch.tensor(sites[turn == t], device=order.device).long() for t in np.unique(turn))
        return [part for sites in together for part in parts_of(model, sites)]

    return kept(order, (begin, stop), cut)


def turns(groups: Iterable[list[int]], indptr: Array, neighbour: Array) -> Array:
    """Numbers that rise just where a group of sites touches one before it, or shares a site with it."""
    lists = [neighbour[a:b].tolist() for a, b in pairwise(indptr.tolist())]
    free = [0] * len(lists)  # the first turn after those that a site has been touched in
    turn = []
    for sites in groups:
        now = max(free[site] for site in sites)
        turn.append(now)
        for site in sites:
            for touched in (site, *lists[site]):
                free[touched] = max(free[touched], now + 1)
    return np.array(turn, np.int64)


def parts_of(model: Model, sites: torch.Tensor) -> list[Part]:
    """The sites (P,) int64 in parts whose longest list is at most twice as long as any, or short."""
    degree = (model.indptr[sites + 1] - model.indptr[sites]).cpu().numpy()
    size = np.ceil(np.log2(np.maximum(degree, SHORT)))
    return [part_of(model, sites[torch.from_numpy(size == s).to(sites.device)]) for s in np.unique(size)]


def part_of(model: Model, sites: torch.Tensor) -> Part:
    """The sites (P,) int64 with their lists."""
    first = model.indptr[sites]
    degree = model.indptr[sites + 1] - first
    offset = torch.arange(int(degree.max()) if len(degree) else 0, device=sites.device)
    real = offset < degree[:, None]
    slots = torch.where(real, first[:, None] + offset, 0)
    return Part(sites, slots, real, model.neighbour[slots].long(), real.flatten().nonzero()[:, 0])


def kept(owner: Any, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
    """What ``make`` makes, once for as long as the owner, an array or a tensor, lives."""
    name = (id(owner), *key)
    known = _kept.get(name)
    if known is not None and known[0]() is owner:  # an id may be given anew
        return cast("Made", known[1])
    made = make()
    _kept[name] = weakref.ref(owner, lambda _: _kept.pop(name, None)), made
    return made
