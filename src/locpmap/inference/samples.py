"""The function :func:`samples`, an iterator over label maps."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from locpmap.arrays import Stopwatch, current_device
from locpmap.errors import InputError, whole_number
from locpmap.inference.api import configure, label_maps, make_problem, result_of
from locpmap.inference.decoder import Decoder, Problem
from locpmap.inference.locpmap import LocPMAP
from locpmap.inference.sampling import Sampler
from locpmap.kernels.model import QUANTUM
from locpmap.potentials import Potentials
from locpmap.result import Result

ALL_DEFAULTS = LocPMAP()


def samples(
    potentials: Potentials,
    decoder: str | Decoder = ALL_DEFAULTS,
    *,
    seed: int = 0,
    chunk: int = 64,
    first_image: int = 0,
    backend: str = "auto",
    device: str = "auto",
    n_threads: int | None = None,
) -> Iterator[Any]:
    """Iterate over the label maps that a decoder draws.

    For decoders with the option ``keep_samples``, the maps are identical to ``result.samples`` of :func:`infer`.  Only
    one chunk of maps is in memory at a time, and no probabilities are computed.

    Args:
        potentials (Potentials): Model to sample from.
        decoder (str or Decoder, default LocPMAP()): Decoder that draws samples, or its name: locpmap, gibbs, icm_iter,
            perturb_and_map or perturb_and_max_product.  Its ``n_samples`` is the number of maps.
        seed (int, default 0): Seed of the random generator, from 0 to 2^64 - 1.
        chunk (int, default 64): Maximal number of samples drawn at a time, rounded up to a multiple of 8.
        first_image (int, default 0): Index of the first image in the random generator, as in :func:`infer`.
        backend (str, default "auto"): Backend, as in :func:`infer`.
        device (str, default "auto"): Device, as in :func:`infer`.
        n_threads (int, default None): Number of threads; None uses all available cores.

    Returns:
        iterator: Label maps of the shape of ``result.labels``: (N, ...) for a batch.

    Raises:
        InputError: If the decoder draws no samples.

    Example:
        >>> pot = lp.Potentials.grid(np.zeros((4, 5, 3)), 1.0)
        >>> areas = [(labels == 0).sum() for labels in lp.samples(pot, lp.LocPMAP(n_samples=100), seed=0)]
        >>> len(areas)
        100

    See Also:
        :func:`infer`, :func:`measure`
    """
    sampler = configure(decoder, {})
    if not isinstance(sampler, Sampler):
        raise InputError(f"decoder is {sampler.name}, which draws no samples: expected one that does, like locpmap")
    where = (seed, first_image, backend, device, n_threads)
    stream = stream_samples(potentials, sampler, chunk, *where, counted=False)
    return (labels for part in stream for labels in part)


def stream_samples(
    potentials: Potentials,
    decoder: Sampler,
    chunk: int = 64,
    seed: int = 0,
    first_image: int = 0,
    backend: str = "auto",
    device: str = "auto",
    n_threads: int | None = None,
    *,
    counted: bool = True,
) -> Generator[Any, None, Result | None]:
    """Yield label maps (R, ...) in chunks.  If ``counted``, the generator also returns the result, without samples.

    >>> stream = stream_samples(Potentials.grid(np.zeros((4, 5, 3)), 1.0), LocPMAP(n_samples=20), chunk=8)
    >>> [part.shape for part in stream]
    [(8, 4, 5), (8, 4, 5), (4, 4, 5)]
    """
    chunk = -(-whole_number("chunk", chunk, 1) // QUANTUM) * QUANTUM
    problem = make_problem(potentials, decoder, seed, first_image, backend, device, n_threads)
    return _stream(potentials, decoder, problem, chunk, counted)


def _stream(
    potentials: Potentials, decoder: Sampler, problem: Problem, chunk: int, counted: bool
) -> Generator[Any, None, Result | None]:
    unary = problem.potentials.unary
    with closing(problem):
        watch = Stopwatch(unary, time.perf_counter())
        with current_device(unary):
            state = decoder.init(problem)
        done = 0
        while done < decoder.n_samples:
            with current_device(unary):  # not during the caller's work
                most = min(chunk, decoder.n_samples - done)
                part = decoder.draw(problem, state, most, counted=counted, keep=True)
                maps = label_maps(potentials, problem, part)
            done += len(part)
            yield maps
        if not counted:
            return None
        with current_device(unary):
            return result_of(potentials, problem, decoder, decoder.finish(problem, state), decoder.at_end, watch)
