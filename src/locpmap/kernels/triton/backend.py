"""The backend "triton": the kernel contract on an NVIDIA GPU, implemented by the launches of this folder."""

from typing import Any

from locpmap.errors import BackendError
from locpmap.kernels.likelihood import Likelihoods
from locpmap.kernels.model import Array
from locpmap.kernels.spec import Advanced, Chain, Kernels, ModelView
from locpmap.kernels.triton.climb.gibbs import gibbs
from locpmap.kernels.triton.climb.mean_field import mean_field, mean_field_bound, score_terms
from locpmap.kernels.triton.message_state import Passing
from locpmap.kernels.triton.sampling import Sampling

MOST_SWEEPS = 64  # limit of sweeps between two convergence checks, which synchronise with the device
LAUNCH_WORK = 2**33  # limit of scores times sweeps between two convergence checks


class TritonKernels(Sampling, Passing, Likelihoods):
    """Operations on tensors of one device."""

    name, likelihoods = "triton", "triton.likelihood"

    def __init__(self, device: str) -> None:
        self.device = device

    def sweeps_per_step(self, model: ModelView) -> int:
        return max(1, min(MOST_SWEEPS, LAUNCH_WORK // model.unary.numel()))

    def precision(self, model: ModelView) -> Any:
        return model.unary.dtype

    def score(self, model: ModelView, labels: Array) -> Array:
        return score_terms(model.flat, labels).sum(dim=1)

    def gibbs(self, model: ModelView, chain: Chain, n_sweeps: int, *, keep: bool = False) -> Array:
        """Advance a Gibbs chain by ``n_sweeps`` sweeps in one launch."""
        if chain.draws is not None or chain.clusters:
            raise BackendError("gibbs draws blocks on the CPU: use device='cpu', or blocks='sites'")
        return gibbs(model.flat, chain, n_sweeps, keep)

    def gibbs_chains(self, model: ModelView, chains: list[Chain], n_sweeps: int, *, keep: bool = False) -> list[Array]:
        return [self.gibbs(model, chain, n_sweeps, keep=keep) for chain in chains]

    def mean_field(self, model: ModelView, beliefs: Array, marks: Array, tolerance: float, n_sweeps: int) -> Advanced:
        """Update beliefs by at most ``n_sweeps`` sweeps in one launch."""
        made = int(mean_field(model.flat, beliefs, marks, tolerance, n_sweeps))
        return Advanced(made, made < n_sweeps or not bool(marks.any()))

    def mean_field_bound(self, model: ModelView, beliefs: Array) -> Array:
        return mean_field_bound(model.flat, beliefs).sum(dim=1)

    def expand(self, model: ModelView, labels: Array, alpha: int, images: Array) -> Array:
        """Raise: cuts are found on the CPU."""
        raise BackendError("graph cuts run on the CPU: use device='cpu'")


_checked: type[Kernels] = TritonKernels
