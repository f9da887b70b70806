"""Measured limits of a GPU, and the resulting lower bound (floor) on the time of a decoding.

The floor counts the work that Local Perturb-and-MAP with this noise cannot avoid:

- inputs are read once and results are written once,
- Philox is called for the first noise of every site and for the start labels that are used,
- the labels of all samples are read once per sweep, from the cache at best.

Comparisons, logarithms and further noise are not counted.
"""

from dataclasses import asdict, dataclass

import torch
import triton
import triton.language as tl

import locpmap as lp
from benchmarks.gpu_clock import queued
from locpmap.kernels.triton.philox import PLAIN, words

N_PROGRAMS, LANES, ROUNDS = 4096, 1024, 64


@dataclass(frozen=True)
class Ceilings:
    """Maximum rates of the GPU."""

    copy_gb_per_s: float  # device memory, read and written
    cache_gb_per_s: float  # L2, read
    philox_per_s: float  # calls of Philox-4x32-10, four words each

    @classmethod
    def of_this_card(cls) -> "Ceilings":
        """Measure the rates, in about a second."""
        return cls(_copy(), _cache(), _philox())


@dataclass(frozen=True)
class Floor:
    """Milliseconds of the parts of the work at the ceilings; parts may overlap, so the floor is their maximum."""

    memory: float  # unaries, weights; labels, probability, variance
    philox: float
    labels: float  # labels of all samples, read once per sweep from the cache

    @property
    def milliseconds(self) -> float:
        """The floor."""
        return max(self.memory, self.philox, self.labels)

    def record(self) -> dict[str, float]:
        """Return the numbers for a result file."""
        return asdict(self) | {"milliseconds": self.milliseconds}


def locpmap_floor(potentials: lp.Potentials, n_samples: int, n_sweeps: float, ceilings: Ceilings) -> Floor:
    """Return the floor of LocPMAP over single sites of a 4-connected grid with Potts weights and a random start."""
    n_images, n_sites, n_labels = potentials.unary.shape
    sites = n_images * n_sites
    weights = sum(weight.nbytes for weight in potentials.pairwise.weights or ())
    moved = 3 * potentials.unary.nbytes + weights + 8 * sites  # probability and variance are as large as the unaries
    # A Philox call gives the noise of eight samples for two labels, and of four otherwise. Half of the start labels are
    # never read: sites of the first colour are updated before their neighbours.
    noise, start = (8, 128) if n_labels == 2 else (4, 4)
    calls = sites * (-(-n_samples // noise) + -(-n_samples // start) / 2)
    return Floor(
        memory=moved / ceilings.copy_gb_per_s / 1e6,
        philox=1000 * calls / ceilings.philox_per_s,
        labels=n_sweeps * sites * n_samples / ceilings.cache_gb_per_s / 1e6,
    )


def _copy() -> float:
    """Measure a copy of 2 GB."""
    source = torch.zeros(2**29, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / queued(lambda: target.copy_(source)) / 1e6


def _cache() -> float:
    """Measure repeated reads of 16 MB that bypass the first-level caches."""
    source = torch.zeros(2**22, device="cuda")
    target = torch.empty(N_PROGRAMS, device="cuda")
    read = N_PROGRAMS * ROUNDS * LANES * source.itemsize
    return read / queued(lambda: _read[(N_PROGRAMS,)](source, target, source.numel() // LANES, ROUNDS, LANES)) / 1e6


def _philox() -> float:
    target = torch.empty(N_PROGRAMS * LANES, dtype=torch.uint32, device="cuda")
    return 1000 * target.numel() * ROUNDS / queued(lambda: _draw[(N_PROGRAMS,)](target, 1, 2, ROUNDS, LANES))


@triton.jit
def _read(source_ptr, target_ptr, n_blocks, ROUNDS: tl.constexpr, LANES: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros([LANES], tl.float32)
    for round_ in range(ROUNDS):
        block = (tl.program_id(0) + round_ * 61) % n_blocks
        total += tl.load(source_ptr + block * LANES + tl.arange(0, LANES), cache_modifier=".cg")
    tl.store(target_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _draw(target_ptr, k0, k1, ROUNDS: tl.constexpr, LANES: tl.constexpr):  # type: ignore[no-untyped-def]
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    mixed = tl.zeros([LANES], tl.uint32)
    for round_ in range(ROUNDS):
        w0, w1, w2, w3 = words(k0, k1, PLAIN, 0, round_, lane, 0)
        mixed ^= w0 ^ w1 ^ w2 ^ w3
    tl.store(target_ptr + lane, mixed)
