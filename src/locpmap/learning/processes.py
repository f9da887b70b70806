"""Data-parallel learning by several processes that ``torchrun`` starts; without it there is one process.

All processes run the same program on the same data, and each works on a part of the images. Sums are added in the order
of the ranks, so every process obtains the same bits and takes the same steps. Only the first process prints and writes.
"""

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

PATIENCE = timedelta(minutes=30)  # timeout of a hung process
FAILED = "locpmap/failed"  # key of the number of failed processes in the shared store
BAD_INPUT = 2  # exit status
GRACE = 5.0  # seconds for the first failed process to print its error before torchrun ends all processes


class LostProcessError(LocpmapError, RuntimeError):
    """Raised when another process ended or timed out during training."""


class Processes:
    """Process group for data-parallel learning.

    Each process creates its own object, which holds its rank and exchanges numbers with the others. This class is the
    group of a single process. :func:`joined_processes` yields the group that ``torchrun`` started, to pass as
    ``FitOptions(processes=..)`` or to :func:`locpmap.nn.train`.

    Attributes:
        rank (int): Number of this process, from 0.
        size (int): Number of processes.
        per_machine (int): Number of processes on this machine.
    """

    rank, size = 0, 1
    per_machine = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that prints and writes files."""
        return self.rank == 0

    def total(self, numbers: Array) -> Array:
        """Return the sum of ``numbers`` (P,) over all processes, with the same bits in each process."""
        return numbers

    def part(self, count: int, turn: int = 0) -> slice:
        """Return the slice of ``range(count)`` that belongs to this process, possibly empty.

        ``turn`` rotates the assignment.  Increase it from call to call, so that fewer items than processes are spread
        evenly.

        >>> from locpmap.learning import Processes
        >>> Processes().part(5)
        slice(0, 5, None)
        """
        place = (self.rank + turn) % self.size
        return slice(count * place // self.size, count * (place + 1) // self.size)

    def agree(self, number: float, otherwise: str) -> None:
        """Raise InputError with the message ``otherwise`` if ``number`` differs between the processes."""

    def tell(self, text: str) -> str:
        """Broadcast a text: return the first process's ``text`` in every process."""
        return text


ALONE = Processes()


class JoinedProcesses(Processes):
    """The processes of torch's default process group."""

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._torch, self._group = import_module("torch"), import_module("torch.distributed")
        self.rank, self.size = self._group.get_rank(), self._group.get_world_size()
        self.per_machine = _number("LOCAL_WORLD_SIZE", self.size)

    def total(self, numbers: Array) -> Array:
        return np.add.reduce(self._gathered(numbers), axis=0)  # adds the rows in the order of the ranks

    def agree(self, number: float, otherwise: str) -> None:
        if len(np.unique(self._gathered(np.array([number])))) > 1:
            raise InputError(otherwise)

    def tell(self, text: str) -> str:
        own = np.frombuffer(text.encode() if self.first else b"", np.uint8)
        letters = np.zeros(int(self.total(np.array([len(own)]))[0]))
        letters[: len(own)] = own
        return bytes(self.total(letters).astype(np.uint8)).decode() if len(letters) else ""

    def _gathered(self, numbers: Array) -> Array:
        """Return the numbers of all processes, (size, P), or raise LostProcessError."""
        own = self._torch.from_numpy(np.array(numbers, np.float64))
        parts = [self._torch.empty_like(own) for _ in range(self.size)]
        began = time.monotonic()
        try:
            self._group.all_gather(parts, own)
        except RuntimeError:
            silent = time.monotonic() - began >= self._patience.total_seconds()
            why = f"has not answered for {self._patience}" if silent else "has ended"
            raise LostProcessError(f"another process {why}, expected all {self.size} to continue") from None
        return np.stack([part.numpy() for part in parts])


@contextmanager
def joined_processes(patience: timedelta = PATIENCE) -> Iterator[Processes]:
    """Join the processes that ``torchrun`` started into one group for the duration of a ``with`` block.

    The group is torch's default process group. It uses Gloo, and NCCL for GPU tensors if every process of the machine
    has a GPU. Without torchrun the group consists of this process, and torch is not imported. If several processes
    fail, the first one raises its error and the others exit with status 2 and no message.

    Args:
        patience (timedelta, default 30 minutes): Timeout after which a hung process counts as lost.

    Yields:
        The :class:`Processes` to pass as ``FitOptions(processes=..)``.

    Raises:
        InputError: If torchrun's environment variables are invalid.
        BackendError: If several processes were started and torch is not installed.
        LostProcessError: If the processes cannot connect, or one of them ends or times out.

    Example:
        >>> from locpmap.learning import joined_processes
        >>> with joined_processes() as processes:
        ...     processes.size, processes.first
        (1, True)

    See Also:
        :class:`FitOptions`, :func:`locpmap.nn.train`.
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
    text = os.environ.get(name, str(otherwise))
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"the environment's {name} is {text!r}, expected a whole number as torchrun sets it")
    return int(text)


def _join(rank: int, size: int, patience: timedelta) -> Any:
    """Initialise torch's process group and return the store that all processes share."""
    try:
        torch, group = import_module("torch"), import_module("torch.distributed")
    except ImportError:
        raise BackendError(f"WORLD_SIZE is {size}, which needs torch: pip install '.[torch]' in a clone") from None
    backend, here = "gloo", _number("LOCAL_WORLD_SIZE", size)
    if torch.cuda.is_available():
        n_gpus = torch.cuda.device_count()
        torch.cuda.set_device(_number("LOCAL_RANK", rank) % n_gpus)
        if here <= n_gpus and group.is_nccl_available():  # NCCL needs one GPU per process
            backend = "cpu:gloo,cuda:nccl"
    try:
        store, _, _ = next(import_module("torch.distributed.rendezvous").rendezvous("env://", timeout=patience))
        # After a restart the store still contains the addresses of ended processes: use another prefix.
        store = group.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        group.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise LostProcessError(f"the {size} processes of WORLD_SIZE did not meet: {why}") from None
    return store


def _failed_before(store: Any) -> bool:
    """Record that this process failed, and return whether another one failed before."""
    try:
        return bool(store.add(FAILED, 1) > 1)
    except RuntimeError:  # the process that hosted the store has ended
        return True
