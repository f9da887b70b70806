"""LocPMAP's samples for a loss: perturb the scores with Gumbel noise, climb from a random start, all on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.nn.potentials import VOID, Field, local_scores


@torch.no_grad()
def sample_local_maxima(field: Field, n_samples: int, max_sweeps: int, generator: torch.Generator) -> Tensor:
    """Local maxima of the perturbed score, (M, N, H, W); void sites stay void.

    Red-black ICM over all samples and images at once, until a sweep changes nothing or ``max_sweeps`` have been made.
    Image-like models take 5 to 9 sweeps of O(M·N·H·W·K) each; memory the same.
    """
    scores = field.scores
    shape = (n_samples, *field.labels.shape)
    noise = torch.empty((*shape, field.n_labels), dtype=scores.dtype, device=scores.device)
    noise.exponential_(generator=generator).log_().neg_()  # -log of an exponential variable is standard Gumbel
    perturbed = field._replace(scores=scores + noise)
    labels = torch.randint(field.n_labels, shape, generator=generator, device=scores.device)

    void = field.labels == VOID
    labels = labels.masked_fill(void, VOID)
    rows, columns = (torch.arange(n, device=scores.device) for n in field.labels.shape[1:])
    black = (rows[:, None] + columns) % 2 == 1
    for _ in range(max_sweeps):
        before = labels
        for colour in (~black, black):
            with torch.autocast(scores.device.type, enabled=False):
                best = local_scores(perturbed, labels).argmax(-1)
            labels = torch.where(colour & ~void, best, labels)
        if torch.equal(labels, before):
            break
    return labels
