"""Where to decode: on the CPU or on a GPU, and with whose kernels."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from locpmap.arrays import on_gpu
from locpmap.errors import BackendError
from locpmap.inference.decoder import Decoder
from locpmap.kernels import ON_GPU, Backend, choose_backend
from locpmap.potentials import Potentials

# Scores times samples from which a GPU pays: a tenth of a second of two cores and more, or, where torch has yet to be
# imported and the GPU to be woken, ten seconds.
WORTH_A_TRANSFER = 2**25
WORTH_AN_IMPORT = 2**32
DRIVER = Path("/dev/nvidiactl")

# Memory on the device, as multiples of the unaries: of all images (themselves, totals, probabilities, messages both
# ways along two edges a site), and of the one whose samples are drawn at a time (perturbed scores of eight, and lists).
FOR_ALL, FOR_ONE = 8, 16


def place(potentials: Potentials, decoder: Decoder, backend: str, device: str) -> Backend:
    """The named backend and device.

    "auto" for both: what lies on a GPU is decoded there if the method can, and NumPy arrays are taken to one if that
    pays.
    """
    home = potentials.unary.device.type if on_gpu(potentials.unary) else None
    if (backend, device) == ("auto", "auto") and not decoder.on_gpu:
        home = None
    elif (backend, device) == ("auto", "auto") and home is None and gpu_pays(potentials, decoder):
        home = "cuda"
    kernels = choose_backend(backend, device, home)
    if kernels.device and not decoder.on_gpu:
        raise BackendError(f"method {decoder.name} runs on the CPU: use device='cpu' or 'auto'")
    return kernels


def gpu_pays(potentials: Potentials, decoder: Decoder) -> bool:
    """Whether NumPy arrays are better decoded on this machine's GPU, the way there and back included."""
    work = potentials.unary.size * int(getattr(decoder, "n_samples", 1))
    if work < (WORTH_A_TRANSFER if "torch" in sys.modules else WORTH_AN_IMPORT):
        return False
    return gpu_has_room(bytes_needed(potentials))


def gpu_has_room(needed: float) -> bool:
    """Whether there is a GPU with so many bytes free; torch is imported only where there is a driver."""
    if "torch" not in sys.modules and not DRIVER.exists():
        return False
    if find_spec("torch") is None or find_spec(ON_GPU) is None:
        return False
    cuda = import_module("torch").cuda
    return bool(cuda.is_available()) and needed <= free_bytes(cuda)


def bytes_needed(potentials: Potentials) -> int:
    """What decoding takes on a GPU at least, roughly: rounds of samples are made smaller, but not for ever."""
    unary, pairwise = potentials.unary, potentials.pairwise
    terms = (*(pairwise.weights or ()), pairwise.features, pairwise.tables)
    # On the device terms may come twice, as they are and as kernels take them.
    of_terms = 2 * sum(term.nbytes for term in terms if term is not None)
    return int(of_terms + FOR_ALL * unary.nbytes + FOR_ONE * unary.nbytes // len(unary))


def free_bytes(cuda: Any) -> float:
    """Of the current GPU: what nobody holds, and what torch holds without use; infinite where it does not tell."""
    try:
        return float(cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated())
    except (RuntimeError, AssertionError):  # whoever decodes there will hear why
        return math.inf
