"""Max-product on perturbed unaries; see the reference.

The samples of an image are treated as separate images that share its pairwise terms.  Memory per sample: messages,
2E·L values, and twice the unaries.
"""

from typing import Any

import torch

from locpmap.kernels.model import UNVISITED, Array, Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.spec import Span
from locpmap.kernels.triton.messages.decode_messages import decode_messages
from locpmap.kernels.triton.messages.sweep_messages import DeviceMessages, DevicePlan, pass_messages
from locpmap.kernels.triton.perturb import perturb


def perturb_and_max_product(
    model: Model, plan: DevicePlan, noise: Perturbation, order: Array, max_sweeps: int, first_image: int, span: Span
) -> tuple[Array, Array]:
    """Return labels (n, S, R), decoded in the given order, and the last sweep that changed a message, (n, R)."""
    _, n_sites, n_labels = model.unary.shape
    lo, hi, _, n_samples = span
    n_copies = (hi - lo) * n_samples
    scores = perturb(model.unary[lo:hi], model.site_id, noise, first_image, span)  # (n, S, L, R)
    sampled = model._replace(
        unary=scores.permute(0, 3, 1, 2).reshape(n_copies, n_sites, n_labels).contiguous(),
        features=model.features[lo:hi] if len(model.features) > 1 else model.features,
        tables=model.tables[lo:hi] if len(model.tables) > 1 else model.tables,
    )
    del scores
    make: dict[str, Any] = {"device": model.unary.device}
    values = torch.zeros((n_copies, 2 * len(model.edges), n_labels), dtype=model.unary.dtype, **make)
    dirty = torch.full((n_copies, n_sites), UNVISITED, dtype=torch.uint8, **make)
    nowhere = torch.zeros(n_copies, dtype=torch.bool, **make)
    last = torch.zeros(n_copies, dtype=torch.int32, **make)
    messages = DeviceMessages(values, dirty, plan, maximise=True, linear=nowhere)
    pass_messages(sampled, messages, max_sweeps, copies=n_samples, last=last)
    labels = torch.empty((n_copies, n_sites), dtype=torch.int16, **make)
    decode_messages(sampled, order, values, labels, n_samples)
    return labels.view(-1, n_samples, n_sites).transpose(1, 2).contiguous(), last.view(-1, n_samples)
