"""LocPMAP's samples for a loss: perturb the scores with Gumbel noise, climb from a random start, all on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.nn.fused import climb
from locpmap.nn.potentials import VOID, Field


@torch.no_grad()
def sample_local_maxima(field: Field, n_samples: int, max_sweeps: int, generator: torch.Generator) -> Tensor:
    """Local maxima of the perturbed score, (M, N, H, W); void sites stay void.

    Image-like models take 5 to 9 sweeps of O(M·N·H·W·K) each; memory the same.
    """
    scores = field.scores
    shape = (n_samples, *field.labels.shape)
    noise = torch.empty((*shape, field.n_labels), dtype=scores.dtype, device=scores.device)
    noise.exponential_(generator=generator).log_()  # minus the log of an exponential variable is standard Gumbel
    labels = torch.randint(field.n_labels, shape, generator=generator, device=scores.device)
    labels = labels.masked_fill(field.labels == VOID, VOID)
    with torch.autocast(scores.device.type, enabled=False):
        return climb(field, noise.neg_().add_(scores), labels, max_sweeps)
