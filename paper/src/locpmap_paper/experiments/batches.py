"""Training batches for networks, created on the network's device."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from locpmap_paper.experiments.denoising import Denoising
from locpmap_paper.experiments.experiment import Case


class Batches:
    """Random batches of images and labels for training.

    Args:
        case: Case whose training label maps are corrupted.
        noise: "fixed" for the noise of the case, "fresh" for new noise of the same kind in every batch.
        batch_size: Number of images in a batch.
        device: Device of the batches.
    """

    def __init__(self, case: Case, noise: str, batch_size: int, device: torch.device) -> None:
        assert isinstance(case.experiment, Denoising) and case.sigma is not None
        self.kind, self.sigma, self.batch_size = case.experiment.noise, case.sigma, batch_size
        self.truth = torch.from_numpy(np.ascontiguousarray(case.fit.truth)).to(device)
        self.noisy = torch.from_numpy(case.fit.inputs).to(device) if noise == "fixed" else None

    def __call__(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (N, 1, H, W) and labels (N, H, W)."""
        count, device = len(self.truth), self.truth.device
        chosen = torch.randint(count, (self.batch_size,), generator=generator, device=device)
        labels = self.truth[chosen].long()
        if self.noisy is not None:
            return self.noisy[chosen][:, None], labels
        return (labels + self.sigma * self._noise(labels, generator))[:, None], labels

    def _noise(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Draw centred noise of variance 1, as in `locpmap_paper.data.Corruption`."""
        draws = torch.empty(labels.shape, device=labels.device)
        if self.kind == "gaussian":
            return draws.normal_(generator=generator)
        gumbel = draws.exponential_(generator=generator).log_().neg_()
        return (gumbel - np.euler_gamma) * (math.sqrt(6) / math.pi)
