"""Checkpoints of a fit: when to save the state, and the interface of the storage."""

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from locpmap.learning.batches import Batch, images_of_process
from locpmap.learning.processes import ALONE, Processes

State = dict[str, npt.NDArray[Any]]
SECONDS_BETWEEN_SAVES = 3.0
WORDS, WORD = 8, 1 << 32  # words of a checksum, and their range: doubles add two million of them exactly


class Store(Protocol):
    """Storage for the state of one fit."""

    def load(self) -> State | None:
        """Return the saved state, or None if there is none."""

    def save(self, state: State) -> None:
        """Replace the saved state atomically."""


class Checkpoint:
    """Save the state of a fit periodically: all processes load it, the first one saves it; without a store, nothing."""

    def __init__(self, store: Store | None, processes: Processes = ALONE) -> None:
        self.store, self.processes = store, processes
        self._saved = time.monotonic()

    def load(self) -> State | None:
        """Return the state of an interrupted fit, or None; raise if the processes read different states."""
        if self.store is None:
            return None
        state = self.store.load()
        mark = -1.0 if state is None else float(sum(np.abs(numbers).sum() for numbers in state.values()))
        self.processes.agree(mark, "the processes find different checkpoints, expected one file that all can read")
        return state

    def offer(self, state: State) -> None:
        """Save the state unless the last save is less than ``SECONDS_BETWEEN_SAVES`` ago."""
        if self.store is None or not self.processes.first:
            return
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self.store.save(state)
            self._saved = time.monotonic()


def digest_of(batches: Sequence[Batch], processes: Processes) -> str:
    """Return a digest of labels and site weights that does not depend on the order of images or on the processes."""
    words = np.zeros(WORDS)
    for batch in images_of_process(batches, processes):
        for n, labels in enumerate(batch.labels):
            checksum = sha256(labels.tobytes() + batch.site_weights[n % len(batch.site_weights)].tobytes())
            words = (words + np.frombuffer(checksum.digest(), ">u4")) % WORD
    return "".join(f"{int(word):08x}" for word in processes.total(words) % WORD)
