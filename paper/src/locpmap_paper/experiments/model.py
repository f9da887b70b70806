"""The interface between the runner and models: a model is fitted to a case, then scores or labels its test images."""

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
Progress = Callable[[int, int], None]  # called with (done, total)


class Fitted(ABC):
    """A model with its weights."""

    details: dict[str, Any]  # JSON values about the fit, without times, so that a repeated fit gives equal details
    seconds: float  # duration of the fit

    def potentials(self, inputs: Array) -> Potentials | None:
        """Return the CRF of a batch of inputs on a grid; None for a network alone."""
        return None

    def probability(self, inputs: Array) -> Array | None:
        """Return the network's probabilities (N, H, W, L) without a CRF; None without a network."""
        return None

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the weights atomically."""


class Fits(Protocol):
    """The fitted models of one case, on which other models can build."""

    processes: Processes  # processes that take part in a fit

    def fitted(self, name: str) -> Fitted:
        """Return another fitted model, which must be in ``needs``; fit it first if necessary."""

    def checkpoint(self, name: str) -> Path:
        """Return the path of a fit's checkpoint, which is removed when the fit is complete."""

    @property
    def cache(self) -> Path:
        """A folder for expensive intermediate results; their names must identify their inputs."""


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """A learning method; :meth:`fit` returns the weights as a `Fitted`."""

    together: ClassVar[bool] = False  # whether all processes of a run take part in a fit; else only the first
    name: str
    features: str  # "raw" or "deep"
    learning: str  # "pseudolikelihood", "composite", "consistent" or "cross-entropy"
    title: str
    says: str
    decoders: tuple[str, ...]  # in any order; see locpmap_paper.experiments.decoders
    levels: tuple[str, ...] | None = None  # levels at which the model exists; all by default
    needs: tuple[str, ...] = ()  # names of the models that it builds on
    settings: dict[str, Any] = field(default_factory=dict)  # further JSON values that the weights depend on

    def needs_for(self, case: Case) -> tuple[str, ...]:
        """Return the models that are needed in this case."""
        return self.needs

    def constants(self, case: Case) -> dict[str, Any]:
        """Return further JSON values that the weights depend on; a change causes a new fit."""
        return {}

    @abstractmethod
    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        """Fit to ``case.fit``, with ``case.held_out`` for early stopping or refitting; never use ``case.test``."""

    @abstractmethod
    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        """Load what :meth:`Fitted.save` wrote; raise an InputError if it cannot be read."""
