"""Max-product on perturbed unaries; see the reference.

The samples of an image are so many images that share its pairwise terms.  Memory per sample: messages, 2E·L values, and
twice the unaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from locpmap.kernels.model import UNVISITED, Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.spec import Span
from locpmap.kernels.triton.messages.decode_messages import decode_messages
from locpmap.kernels.triton.messages.sweep_messages import pass_messages
from locpmap.kernels.triton.perturb import perturb


def perturb_and_max_product(
    model: Model,
    perturbation: Perturbation,
    order: Any,
    decode_order: Any,
    damping: float,
    undamped: int,
    tolerance: float,
    max_sweeps: int,
    first_image: int,
    span: Span,
    labels: Any,
    ends: Sequence[int] | None = None,
    grid: tuple[int, int, int] | None = None,
) -> torch.Tensor:
    """Fill ``labels`` (n, S, R); returns the last sweep that changed a message, (n, R).

    Beyond the reference: ``ends`` and ``grid``, see `sweep_messages`.
    """
    n_images, n_sites, n_samples = labels.shape
    n_copies, n_labels = n_images * n_samples, model.unary.shape[2]
    lo, hi = span.lo, span.hi
    scores = perturb(model.unary[lo:hi], model.site_id, perturbation, first_image, span)  # (n, S, L, R)
    sampled = model._replace(
        unary=scores.permute(0, 3, 1, 2).reshape(n_copies, n_sites, n_labels).contiguous(),
        features=model.features[lo:hi] if len(model.features) > 1 else model.features,
        tables=model.tables[lo:hi] if len(model.tables) > 1 else model.tables,
    )
    del scores
    make: dict[str, Any] = {"device": labels.device}
    messages = torch.zeros((n_copies, 2 * len(model.edges), n_labels), dtype=model.unary.dtype, **make)
    dirty = torch.full((n_copies, n_sites), UNVISITED, dtype=torch.uint8, **make)
    nowhere = torch.zeros(n_copies, dtype=torch.bool, **make)
    last = torch.zeros(n_copies, dtype=torch.int32, **make)
    state = (order, messages, dirty, nowhere, None, True, damping, tolerance, 0, n_copies, 0, len(order))
    more = {"n_sweeps": max_sweeps, "ends": ends, "grid": grid, "undamped": undamped, "copies": n_samples}
    pass_messages(sampled, *state, **more, last=last)
    decoded = torch.empty((n_copies, n_sites), dtype=labels.dtype, **make)
    decode_messages(sampled, decode_order, messages, decoded, 0, n_copies, n_samples)
    labels.copy_(decoded.view(n_images, n_samples, n_sites).transpose(1, 2))
    return last.view(n_images, n_samples)
