"""What every decoder returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from locpmap.arrays import namespace, on_gpu
from locpmap.potentials import Potentials


class Status(StrEnum):
    """How a run ended; the values are the messages."""

    EXACT = "exact"
    CONVERGED = "converged"
    COMPLETE = "drew all samples"
    MAX_SWEEPS = "stopped at max_sweeps before converging"
    CLIMBS_CUT = "drew all samples, but some climbs stopped at max_sweeps before a local maximum"
    MAX_SECONDS = "stopped at max_seconds"
    FORBIDDEN = "ended with labels that a pairwise table forbids (score -inf)"


class BoundKind(StrEnum):
    """What ``Result.log_partition`` is."""

    EXACT = "exact"
    LOWER = "lower bound"
    UPPER = "upper bound"
    BETHE = "Bethe approximation"


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    status: Status
    seconds: float
    n_sweeps: float


@dataclass(frozen=True, eq=False)
class Result:
    """Labels, what is known about their uncertainty, and how they came about.

    Shapes follow the potentials: ``labels`` (.., H, W) or (.., S); ``probability``, ``variance`` (.., L).
    Masked sites have label -1 and probability 0.  ``probability`` is None for decoders that give one labelling
    and no uncertainty (icm, annealing, graph_cut, max_product).  What it is the distribution of, the decoder's class
    says: the model's marginals (exact, gibbs), an approximation of them (lbp, trw, mean_field), or how often
    perturbed maxima have the label (locpmap, perturb_and_map, perturb_and_max_product).

    Where tables forbid pairs of labels by -inf, ``status`` says if the labels of an image break such a pair; the images
    are those with a ``score`` of -inf.

    On a GPU the samplers' labels and probabilities may still be on their way, as with any operation of torch; how the
    run ended (``status``, ``seconds``, ``n_sweeps``) is known, and waited for, when it is asked for.
    """

    labels: Any
    probability: Any
    method: str
    backend: str
    device: str
    n_samples: int = 0
    noise: str | None = None  # the scheme, for decoders that perturb
    log_partition: Any = None  # () or (N,)
    log_partition_kind: BoundKind | None = None
    samples: Any = None  # (M, .., sites) int16
    ending: Ending | Callable[[], Ending] = field(repr=False, kw_only=True)
    potentials: Potentials = field(repr=False, kw_only=True)

    def __repr__(self) -> str:
        gives = "labels" if self.probability is None else "labels, probability"
        shape = tuple(int(n) for n in self.labels.shape)
        where = f"{self.backend} on {self.device}"
        return f"<Result of {self.method}: {gives} {shape}, {self.status}, {self.seconds:.3g} s, {where}>"

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: how the run ended, rather than how to ask a GPU for it."""
        return {**self.__dict__, "ending": self._ended}

    @cached_property
    def _ended(self) -> Ending:
        return self.ending if isinstance(self.ending, Ending) else self.ending()

    @property
    def status(self) -> Status:
        """How the run ended."""
        return self._ended.status

    @property
    def seconds(self) -> float:
        """Wall time; the first run of a decoder includes compiling it, a few seconds per precision."""
        return self._ended.seconds

    @property
    def n_sweeps(self) -> float:
        """Sweeps made; for samplers the mean over samples."""
        return self._ended.n_sweeps

    @property
    def converged(self) -> bool:
        """Whether the run ended by itself rather than at a limit, with labels that the model allows."""
        return self.status in (Status.EXACT, Status.CONVERGED, Status.COMPLETE)

    @cached_property
    def score(self) -> Any:
        """θ of ``labels`` under the unperturbed model: a float, or (N,) for a batch."""
        return self.potentials.score(self.labels)

    @cached_property
    def variance(self) -> Any:
        """p(1 - p) per label."""
        return None if self.probability is None else variance_of(self.probability)

    @cached_property
    def entropy(self) -> Any:
        """-Σ p log p per site, in nats."""
        return None if self.probability is None else self.potentials.restore(entropy_of(self.probability))


def variance_of(probability: Any) -> Any:
    """p(1 - p), of the same shape."""
    return probability * (1 - probability)


def entropy_of(probability: Any) -> Any:
    """-Σ p log p over the last axis, in nats; of a tensor on the CPU, a NumPy array."""
    p = probability if on_gpu(probability) else np.asarray(probability)
    xp = namespace(p)
    terms = p * xp.log(xp.where(p > 0, p, 1))
    return (0 - terms.sum(axis=-1)).clip(0)  # 0 - 0 has no sign, unlike -0
