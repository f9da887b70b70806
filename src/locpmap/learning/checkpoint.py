"""Where a fit leaves its state, as the learner sees it: something with ``load`` and ``save``."""

from __future__ import annotations

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
WORDS, WORD = 8, 1 << 32  # of a checksum, of which doubles can add up two million


class Store(Protocol):
    """A place for the state of one fit."""

    def load(self) -> State | None:
        """The state left there, or None."""

    def save(self, state: State) -> None:
        """Replace it, all at once."""


class Checkpoint:
    """Saves now and then; does nothing without a store.  Of several processes all load, and the first one saves."""

    def __init__(self, store: Store | None, processes: Processes = ALONE) -> None:
        self.store, self.processes = store, processes
        self._saved = time.monotonic()

    def load(self) -> State | None:
        """The state of an earlier, interrupted fit."""
        if self.store is None:
            return None
        state = self.store.load()
        mark = -1.0 if state is None else float(sum(np.abs(numbers).sum() for numbers in state.values()))
        self.processes.agree(mark, "the processes find different checkpoints, expected one file that all can read")
        return state

    def offer(self, state: State) -> None:
        """Save, if the last time is a few seconds ago."""
        if self.store is None or not self.processes.first:
            return
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self.store.save(state)
            self._saved = time.monotonic()


def digest_of(batches: Sequence[Batch], processes: Processes) -> str:
    """Of labels and weights, whoever goes through which images: their checksums added up, word by word; one pass."""
    words = np.zeros(WORDS)
    for batch in images_of_process(batches, processes):
        for n, labels in enumerate(batch.labels):
            checksum = sha256(labels.tobytes() + batch.site_weights[n % len(batch.site_weights)].tobytes())
            words = (words + np.frombuffer(checksum.digest(), ">u4")) % WORD
    return "".join(f"{int(word):08x}" for word in processes.total(words) % WORD)
