"""Where a fit leaves its state, as the learner sees it: something with ``load`` and ``save``."""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy.typing as npt

State = dict[str, npt.NDArray[Any]]
SECONDS_BETWEEN_SAVES = 3.0


class Store(Protocol):
    """A place for the state of one fit."""

    def load(self) -> State | None:
        """The state left there, or None."""

    def save(self, state: State) -> None:
        """Replace it, all at once."""


class Checkpoint:
    """Saves now and then; does nothing without a store."""

    def __init__(self, store: Store | None) -> None:
        self.store = store
        self._saved = time.monotonic()

    def load(self) -> State | None:
        """The state of an earlier, interrupted fit."""
        return None if self.store is None else self.store.load()

    def offer(self, state: State) -> None:
        """Save, if the last time is a few seconds ago."""
        if self.store is not None and time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self.store.save(state)
            self._saved = time.monotonic()
