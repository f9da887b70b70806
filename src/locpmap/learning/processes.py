"""Several processes that learn together, as ``torchrun`` starts them; without it there is one.

All run the same program on the same data, and each works on its share of the images.  Sums are added up in the order of
the processes, so that all see the same bits and take the same steps; the first one alone speaks and writes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import BackendError, InputError, LocpmapError

PATIENCE = timedelta(minutes=30)  # with a process that neither answers nor ends
FAILED = "locpmap/failed"  # how many processes have failed, in the store that all share
BAD_INPUT = 2  # exit status
GRACE = 5.0  # seconds for the first to say why, before torchrun ends all because another has ended


class LostProcessError(LocpmapError, RuntimeError):
    """Another process ended, or did not answer, in the midst of a training."""


class Processes:
    """This process among those that learn together: here, the only one."""

    rank, size = 0, 1
    per_machine = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that speaks and writes."""
        return self.rank == 0

    def total(self, numbers: Array) -> Array:
        """The numbers (P,) of all processes, added up: the same bits in each."""
        return numbers

    def part(self, count: int, turn: int = 0) -> slice:
        """This process's piece of ``range(count)``; with another ``turn``, another process's, so that all get some.

        >>> Processes().part(5)
        slice(0, 5, None)
        """
        place = (self.rank + turn) % self.size
        return slice(count * place // self.size, count * (place + 1) // self.size)

    def agree(self, number: float, otherwise: str) -> None:
        """Refuse, with that sentence, to go on where the processes have different numbers."""

    def tell(self, text: str) -> str:
        """What the first process says, whatever the others say."""
        return text


ALONE = Processes()


class JoinedProcesses(Processes):
    """This process among those of torch's process group."""

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._torch, self._group = import_module("torch"), import_module("torch.distributed")
        self.rank, self.size = self._group.get_rank(), self._group.get_world_size()
        self.per_machine = _number("LOCAL_WORLD_SIZE", self.size)

    def total(self, numbers: Array) -> Array:
        return np.add.reduce(self._everyones(numbers), axis=0)  # row by row, so in one order

    def agree(self, number: float, otherwise: str) -> None:
        if len(np.unique(self._everyones(np.array([number])))) > 1:
            raise InputError(otherwise)

    def tell(self, text: str) -> str:
        own = np.frombuffer(text.encode() if self.first else b"", np.uint8)
        letters = np.zeros(int(self.total(np.array([len(own)]))[0]))
        letters[: len(own)] = own
        return bytes(self.total(letters).astype(np.uint8)).decode() if len(letters) else ""

    def _everyones(self, numbers: Array) -> Array:
        own = self._torch.from_numpy(np.array(numbers, np.float64))
        everyones = [self._torch.empty_like(own) for _ in range(self.size)]
        began = time.monotonic()
        try:
            self._group.all_gather(everyones, own)
        except RuntimeError:  # whichever the network gives
            silent = time.monotonic() - began >= self._patience.total_seconds()
            why = f"has not answered for {self._patience}" if silent else "has ended"
            raise LostProcessError(f"another process {why}, expected all {self.size} to go on") from None
        return np.stack([part.numpy() for part in everyones])


@contextmanager
def joined_processes(patience: timedelta = PATIENCE) -> Iterator[Processes]:
    """Inside, the processes that ``torchrun`` has started learn together; without it, there is one, and no torch.

    Where several fail, the first to do so says why, and the others exit in silence.

    >>> with joined_processes() as processes:
    ...     processes.size, processes.first
    (1, True)
    """
    rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    if size == 1:
        yield ALONE
        return
    if rank >= size:
        raise InputError(f"RANK is {rank}, expected less than WORLD_SIZE, which is {size}")
    store = _join(rank, size, patience)
    try:
        yield JoinedProcesses(patience)
    except BaseException:
        if _failed_before(store):
            time.sleep(GRACE)
            raise SystemExit(BAD_INPUT) from None
        raise
    finally:
        import_module("torch.distributed").destroy_process_group()


def _number(name: str, otherwise: int) -> int:
    """A number of the environment that torchrun sets."""
    text = os.environ.get(name, str(otherwise))
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"the environment's {name} is {text!r}, expected a whole number as torchrun sets it")
    return int(text)


def _join(rank: int, size: int, patience: timedelta) -> Any:
    """Meet the others; returns the store that all share."""
    try:
        torch, group = import_module("torch"), import_module("torch.distributed")
    except ImportError:
        raise BackendError(f"WORLD_SIZE is {size}, which needs torch: pip install locpmap[torch]") from None
    backend, here = "gloo", _number("LOCAL_WORLD_SIZE", size)
    if torch.cuda.is_available():
        n_gpus = torch.cuda.device_count()
        torch.cuda.set_device(_number("LOCAL_RANK", rank) % n_gpus)
        if here <= n_gpus and group.is_nccl_available():  # which wants a GPU for every process
            backend = "cpu:gloo,cuda:nccl"
    try:
        store, _, _ = next(import_module("torch.distributed.rendezvous").rendezvous("env://", timeout=patience))
        # After a restart the store still holds the addresses of those that have ended.
        store = group.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        group.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise LostProcessError(f"the {size} processes of WORLD_SIZE did not meet: {why}") from None
    return store


def _failed_before(store: Any) -> bool:
    """Whether another process has failed before this one, which says here that it has."""
    try:
        return bool(store.add(FAILED, 1) > 1)
    except RuntimeError:  # the store has ended with the process that kept it
        return True
