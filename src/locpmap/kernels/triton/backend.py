"""The backend "triton": the contract on an NVIDIA GPU, over the launches of this folder."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from locpmap.kernels.likelihood import Likelihoods
from locpmap.kernels.model import NOTHING, Array
from locpmap.kernels.spec import Advanced, Chain, ModelView
from locpmap.kernels.triton.climb.gibbs import gibbs
from locpmap.kernels.triton.climb.mean_field import mean_field, mean_field_bound
from locpmap.kernels.triton.count.score_terms import score_terms
from locpmap.kernels.triton.message_state import Passing
from locpmap.kernels.triton.sampling import Sampling

if TYPE_CHECKING:
    from locpmap.kernels.spec import Kernels

MOST_SWEEPS = 64  # before a decoder asks whether it has converged, which makes everything wait
LAUNCH_WORK = 2**33  # scores times sweeps, after which it asks in any case


class TritonKernels(Sampling, Passing, Likelihoods):
    """Tensors on one device."""

    name, likelihoods = "triton", "triton.likelihood"

    def __init__(self, device: str) -> None:
        self.device = device

    def __reduce__(self) -> tuple[type[TritonKernels], tuple[str | None]]:
        return TritonKernels, (self.device,)

    def close(self) -> None:
        """Do nothing: there are no threads."""

    def sweeps_per_step(self, model: ModelView) -> int:
        """Ask for many sweeps at a time, since an answer makes everything wait."""
        return max(1, min(MOST_SWEEPS, LAUNCH_WORK // model.unary.numel()))

    def precision(self, model: ModelView) -> Any:
        """Use the unaries' precision."""
        return model.unary.dtype

    def score(self, model: ModelView, labels: Array) -> Array:
        """Return θ(y) of labels (N, S)."""
        terms = torch.zeros(tuple(labels.shape), dtype=torch.float64, device=labels.device)
        score_terms(model.flat, labels, terms, *_everything(model))
        return terms.sum(dim=1)

    def gibbs(self, model: ModelView, chain: Chain, n_sweeps: int, *, keep: bool = False) -> Array:
        """Advance a chain in one launch."""
        n_kept = chain.counted(n_sweeps) if keep else 0
        kept = torch.empty((n_kept, *chain.labels.shape), dtype=torch.int16, device=chain.labels.device)
        totals = _no_totals(chain.labels.device) if chain.totals is None else chain.totals
        adds = NOTHING if chain.totals is None else chain.adds
        how = (adds, chain.temperature, *chain.key, chain.sweeps + 1, chain.first_image)
        counted: tuple[Any, ...] = (n_sweeps, chain.cooling, chain.first_counted, chain.thin, kept)
        gibbs(model.flat, chain.labels, totals, *how, *_everything(model), *counted)
        chain.sweeps += n_sweeps
        return kept

    def mean_field(self, model: ModelView, beliefs: Array, marks: Array, tolerance: float, n_sweeps: int) -> Advanced:
        """Advance beliefs in one launch."""
        made = int(mean_field(model.flat, beliefs, marks, tolerance, *_everything(model), n_sweeps))
        return Advanced(made, made < n_sweeps or not bool(marks.any()))

    def mean_field_bound(self, model: ModelView, beliefs: Array) -> Array:
        """Return the lower bound of log Z."""
        terms = torch.zeros(tuple(beliefs.shape[:2]), dtype=torch.float64, device=beliefs.device)
        mean_field_bound(model.flat, beliefs, terms, *_everything(model))
        return terms.sum(dim=1)


@cache
def _no_totals(device: torch.device) -> torch.Tensor:
    return torch.zeros((0, 0, 0), dtype=torch.float64, device=device)


def _everything(model: ModelView) -> tuple[int, int, int, int]:
    """Return all images and all positions of the order."""
    n_images, n_sites, _ = model.unary.shape
    return 0, n_images, 0, n_sites


if TYPE_CHECKING:
    _checked: type[Kernels] = TritonKernels
