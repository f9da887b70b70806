"""Max-product on perturbed unaries, then a labelling, of all samples at once; see the reference.

Samples are taken for images of their own: memory is 2E·L values for each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.reference.messages import UNVISITED
from locpmap.kernels.torch.decode_messages import decode_messages
from locpmap.kernels.torch.neighbours import order_parts
from locpmap.kernels.torch.pass_messages import visit
from locpmap.kernels.torch.perturbing import perturb


def perturb_and_max_product(
    model: Model,
    perturbation: Perturbation,
    order: Tensor,
    decode_order: Tensor,
    damping: float,
    undamped: int,
    tolerance: float,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: Tensor,
    ends: Any = None,
    grid: Any = None,
) -> Tensor:
    """Fill ``labels`` (hi - lo, S, R); returns the last sweep that changed a message, (hi - lo, R).

    Beyond the reference: ``ends`` and ``grid`` as in `pass_messages`.
    """
    n_samples = labels.shape[2]
    unary = perturb(model.unary[lo:hi], model.site_id, perturbation, first_image + lo, first_sample, n_samples)
    unary = unary.movedim(3, 1).flatten(0, 1).contiguous()  # (n · R, S, L)
    features, tables = (
        terms[lo:hi].repeat_interleave(n_samples, dim=0) if len(terms) > 1 else terms
        for terms in (model.features, model.tables)
    )
    many = model._replace(unary=unary, features=features, tables=tables)
    parts = order_parts(model, order, 0, len(order), ends)
    n = len(unary)
    messages = unary.new_zeros((n, len(model.neighbour), unary.shape[2]))
    dirty = torch.full(unary.shape[:2], UNVISITED, dtype=torch.uint8, device=unary.device)
    here = torch.ones((n, 1), dtype=torch.bool, device=unary.device)
    last = torch.zeros(n, dtype=torch.int32, device=unary.device)
    for sweep in range(1, max_sweeps + 1):
        now = damping if sweep > undamped else 0.0
        changed = torch.zeros_like(here[:, 0])
        for part in parts:
            sent = visit(many, part, unary[:, part.sites], messages, dirty, here, None, True, now, tolerance, 0, n)
            changed |= sent.flatten(1).any(dim=1)
        last = torch.where(changed, sweep, last)
        if not changed.any():
            break
    found = torch.empty(unary.shape[:2], dtype=torch.int64, device=unary.device)
    decode_messages(many, decode_order, messages, found, 0, n)
    labels.copy_(found.unflatten(0, (hi - lo, n_samples)).movedim(1, 2))
    return last.unflatten(0, (hi - lo, n_samples))
