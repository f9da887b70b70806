"""What a model is to the runner: something that learns from a case and then scores, or labels, its test images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy.typing as npt

from locpmap import Potentials
from locpmap.learning import Processes
from locpmap_paper.experiments.experiment import Case

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]  # (done, total) of what is under way


class Fitted(ABC):
    """A model with its weights."""

    details: dict[str, Any]  # how the fit went, in what JSON can hold; no times, so that a second fit says the same
    seconds: float  # that it took

    def potentials(self, inputs: Array) -> Potentials | None:
        """The CRF of a batch of inputs, on a grid; None for a network alone."""
        return None

    def probability(self, inputs: Array) -> Array | None:
        """The network's own probabilities (N, H, W, L); None where there is no network."""
        return None

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the weights, whole or not at all."""


class Fits(Protocol):
    """The fitted models of one case, which a model may build upon."""

    processes: Processes  # those that take part in a fit

    def fitted(self, name: str) -> Fitted:
        """Another model, fitted first if need be; it must stand in ``needs``."""

    def checkpoint(self, name: str) -> Path:
        """A file for the state of a fit that may be interrupted; removed when the fit has been kept."""

    @property
    def cache(self) -> Path:
        """A folder for what takes long to make, each thing under a name that says what it was made of."""


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """A way to learn, without weights."""

    together: ClassVar[bool] = False  # whether all processes of a run take part in a fit, and not the first one alone
    name: str
    features: str  # "raw" or "deep"
    learning: str  # "pseudolikelihood", "composite", "consistent" or "cross-entropy"
    title: str
    says: str
    decoders: tuple[str, ...]  # in any order; see locpmap_paper.experiments.decoders
    levels: tuple[str, ...] | None = None  # at which there is such a model; all by default
    needs: tuple[str, ...] = ()  # names of the models it builds upon
    settings: dict[str, Any] = field(default_factory=dict)  # whatever else decides the weights, in what JSON can hold

    def needs_for(self, case: Case) -> tuple[str, ...]:
        """Those that this case really needs."""
        return self.needs

    def constants(self, case: Case) -> dict[str, Any]:
        """What decides the weights beside ``settings``, in what JSON can hold: another fit where it changes."""
        return {}

    @abstractmethod
    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        """Learn from ``case.fit``, with ``case.held_out`` to stop or refit on; never look at ``case.test``."""

    @abstractmethod
    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        """What :meth:`Fitted.save` wrote; InputError where it cannot be read."""
