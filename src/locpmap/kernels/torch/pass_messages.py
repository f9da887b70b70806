"""Message passing in logarithms, all sites of a colour class at once; see the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.reference.messages import CHANGED
from locpmap.kernels.torch.mean_field import mark_neighbours
from locpmap.kernels.torch.messages import appearances, belief, cavity, mix, received, send, store, terms_of
from locpmap.kernels.torch.neighbours import Part, order_parts


def pass_messages(
    model: Model,
    order: Tensor,
    messages: Tensor,
    dirty: Tensor,
    linear: Tensor,
    rho: Tensor | None,
    maximise: bool,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
    n_sweeps: int = 1,
    ends: Any = None,
    grid: Any = None,
    undamped: int = 0,
    made: int = 0,
) -> Tensor:
    """Visit positions begin..stop of ``order`` in images lo..hi, except those kept in the linear domain.

    Beyond the reference: at most ``n_sweeps`` times, until no site is marked; ``ends`` says where levels of the order
    begin and end, whose sites do not touch; ``grid``, which Triton's kernels make use of, is not needed here; damping
    begins after ``undamped`` sweeps, of which ``made`` were made before; ``rho`` may be None where it is 1 everywhere.
    Returns which of the sweeps visited any site, and whether one more would, (n_sweeps + 1,).
    """
    here = ~linear[lo:hi, None]
    parts = order_parts(model, order, begin, stop, ends)

    def sweep(number: int) -> None:
        now = damping if number >= undamped else 0.0
        for part in parts:
            unary = model.unary[lo:hi, part.sites]
            visit(model, part, unary, messages[lo:hi], dirty[lo:hi], here, rho, maximise, now, tolerance, lo, hi)

    return sweep_while_marked(sweep, dirty[lo:hi], here, order[begin:stop].long(), n_sweeps, made)


def sweep_while_marked(
    sweep: Callable[[int], None], dirty: Tensor, here: Tensor, sites: Tensor, n_sweeps: int, made: int
) -> Tensor:
    """Call ``sweep(made)``, ``sweep(made + 1)``, .. while a site of an image that is ``here`` (n, 1) is marked.

    Returns 1 for each of the ``n_sweeps`` sweeps that found a mark, and for one more if it would, (n_sweeps + 1,).
    """
    visited = torch.zeros(n_sweeps + 1, dtype=torch.int32)
    for number in range(n_sweeps + 1):
        if not (dirty[:, sites] * here).any():
            break
        visited[number] = 1
        if number < n_sweeps:
            sweep(made + number)
    return visited


def visit(
    model: Model,
    part: Part,
    unary: Tensor,
    messages: Tensor,
    dirty: Tensor,
    here: Tensor,
    rho: Tensor | None,
    maximise: bool,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
) -> Tensor:
    """Let the part's sites send, of the images that are ``here`` (n, 1); returns where anything changed, (n, P, D).

    Unaries (n, P, L), messages (n, 2E, L), dirty (n, S).
    """
    shares = appearances(model, part, rho, messages.dtype)
    incoming = received(messages, part)
    whole = belief(unary, incoming, shares)
    fresh, _ = send(cavity(whole[:, :, None], incoming), terms_of(model, part, shares, lo, hi), maximise)
    old = messages[:, model.reverse[part.slots].long()]
    fresh = mix(old, fresh, damping, maximise)
    moved = (fresh - old).abs() > tolerance  # of -inf and -inf it is no number, which is not more
    return commit(model, part, messages, dirty, here, old, fresh, moved)


def commit(
    model: Model, part: Part, messages: Tensor, dirty: Tensor, here: Tensor, old: Tensor, fresh: Tensor, moved: Tensor
) -> Tensor:
    """Write the messages that the part's dirty sites send where an entry moved, or all on a first visit."""
    mark = torch.where(here, dirty[:, part.sites], 0)
    changed = (mark > 0)[:, :, None] & ((mark > CHANGED)[:, :, None] | moved.any(dim=3)) & part.real
    store(messages, model, part, torch.where(changed[..., None], fresh, old))
    dirty[:, part.sites] = torch.where(here, 0, dirty[:, part.sites])
    mark_neighbours(dirty, part, changed)
    return changed
