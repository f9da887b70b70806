"""The batches that a network is trained on, made on its device."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from locpmap_paper.experiments.denoising import Denoising
from locpmap_paper.experiments.experiment import Case


class Batches:
    """Images and labels of one step, drawn from the images to learn from.

    Args:
        case: Whose label maps are corrupted.
        noise: "fixed": as the case corrupts them; "fresh": under noise of the same kind, drawn anew.
        batch_size: Images in a batch.
        device: Where they are made.
    """

    def __init__(self, case: Case, noise: str, batch_size: int, device: torch.device) -> None:
        assert isinstance(case.experiment, Denoising) and case.sigma is not None
        self.kind, self.sigma, self.batch_size = case.experiment.noise, case.sigma, batch_size
        self.truth = torch.from_numpy(np.ascontiguousarray(case.fit.truth)).to(device)
        self.noisy = torch.from_numpy(case.fit.inputs).to(device) if noise == "fixed" else None

    def __call__(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Images (N, 1, H, W) and labels (N, H, W)."""
        count, device = len(self.truth), self.truth.device
        chosen = torch.randint(count, (self.batch_size,), generator=generator, device=device)
        labels = self.truth[chosen].long()
        if self.noisy is not None:
            return self.noisy[chosen][:, None], labels
        return (labels + self.sigma * self._noise(labels, generator))[:, None], labels

    def _noise(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Centred, of variance 1, as in `locpmap_paper.data.Corruption`."""
        draws = torch.empty(labels.shape, device=labels.device)
        if self.kind == "gaussian":
            return draws.normal_(generator=generator)
        gumbel = draws.exponential_(generator=generator).log_().neg_()
        return (gumbel - np.euler_gamma) * (math.sqrt(6) / math.pi)
