"""`infer`: one verb for every decoder."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import Any

from locpmap.arrays import Stopwatch, cast, current_device, is_tensor, namespace
from locpmap.errors import BackendError, InputError, InputTypeError, unknown, whole_number, within
from locpmap.inference.decoder import Climbs, Decoder, Outcome, Problem, Progress, checked
from locpmap.inference.out_of_memory import drive_in_memory, is_forbidden
from locpmap.inference.registry import DECODERS, options_of
from locpmap.kernels.placement import Job, place
from locpmap.kernels.spec import Kernels
from locpmap.noise import key_of
from locpmap.potentials import Potentials
from locpmap.result import Ending, Result, Status

PLAIN = (bool, int, float, str)
# Memory on a GPU, as multiples of the unaries: of all images (themselves, totals, probabilities, messages both ways
# along two edges a site), and of the one whose samples are drawn at a time (perturbed scores of eight, and lists).
FOR_ALL, FOR_ONE = 8, 16
# What `infer` itself takes by name: a misspelt one ends up among the decoder's options.
ARGUMENTS = ("seed", "backend", "device", "first_image", "max_seconds", "n_threads", "progress")


def infer(
    potentials: Potentials,
    method: str | Decoder = "locpmap",
    *,
    seed: int = 0,
    backend: str = "auto",
    device: str = "auto",
    first_image: int = 0,
    max_seconds: float | None = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Result:
    """Decode a model.

    Args:
        potentials: What to decode.
        method: A decoder's name, with its options as further arguments, or a configured decoder.
        seed: The seed of all noise, 0 to 2^64 - 1.  The same seed gives the same bits for any number of threads.
        backend: "auto", "reference", "numba" (CPU) or "triton" (NVIDIA GPU); a named one runs or raises.
        device: "cpu", "cuda" or "auto": potentials on an NVIDIA GPU are decoded there where the method can; large ones
            in NumPy arrays are taken to one if there is one; all others are decoded on the CPU.
        first_image: The number of the first image in the noise's keys: images 100 and on of a batch, decoded by
            themselves with ``first_image=100``, come out as they do in the whole batch.
        max_seconds: Stop after the step that passes this time and return what there is.
        n_threads: Threads to use; all available cores by default.
        progress: Called as ``progress(done, total)`` after every step.
        **options: The decoder's options; see its class.

    The first run of a decoder compiles its kernels, once per precision (seconds, counted in ``result.seconds``), and
    keeps them on disk.  Results carry no gradient.

    >>> import numpy as np
    >>> pot = Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 1.0]]]), 1.0)
    >>> infer(pot, "exact").labels
    array([[1, 1, 1]])
    """
    decoder = configure(method, options)
    if max_seconds is not None:
        within("max_seconds", max_seconds, 0)
    if progress is not None and not callable(progress):
        raise InputTypeError(f"progress is {progress!r}, expected a callable that takes (done, total)")
    began = time.perf_counter()
    problem = make_problem(potentials, decoder, seed, first_image, backend, device, n_threads)
    with closing(problem), current_device(problem.potentials.unary):
        watch = Stopwatch(problem.potentials.unary, began)
        outcome, status = drive_in_memory(decoder, problem, max_seconds, progress)
        return result_of(potentials, problem, decoder, outcome, status, watch)


def make_problem(
    potentials: Potentials,
    decoder: Decoder,
    seed: int,
    first_image: int,
    backend: str,
    device: str,
    n_threads: int | None,
) -> Problem:
    """Check the arguments, choose where to run, and return what a decoder works on; the caller closes it."""
    if not isinstance(potentials, Potentials):
        raise InputTypeError(
            f"potentials is a {type(potentials).__name__}, expected what Potentials.grid or Potentials.graph makes"
        )
    first_image = check_first_image(first_image, potentials.n_images)
    if n_threads is not None:
        whole_number("n_threads", n_threads, 1)
    key = key_of(seed)
    kernels = place_decoding(potentials, decoder, backend, device, n_threads)
    return Problem(potentials.to(kernels.device), kernels, key, first_image)


def check_first_image(first_image: int, n_images: int) -> int:
    """Return the number of the first image, or raise where the noise's counter cannot hold those of the batch."""
    first = whole_number("first_image", first_image, 0, 2**28)
    if first + n_images > 2**28:
        raise InputError(f"first_image is {first}, expected first_image + the batch to stay below 2^28")
    return first


def place_decoding(
    potentials: Potentials, decoder: Decoder, backend: str, device: str, n_threads: int | None = None
) -> Kernels:
    """Choose where to decode; a decoder of the CPU stays there."""
    unary = potentials.unary
    job = Job()
    if decoder.on_gpu:
        device_type = unary.device.type if is_tensor(unary) else None
        job = Job(device_type, decoder.work(math.prod(unary.shape)), bytes_needed(potentials))
    kernels = place(backend, device, job, n_threads)
    if kernels.device is not None and not decoder.on_gpu:
        raise BackendError(f"method {decoder.name} runs on the CPU: use device='cpu' or 'auto'")
    return kernels


def bytes_needed(potentials: Potentials) -> int:
    """Return what decoding takes on a GPU at least, roughly: rounds of samples are made smaller, but not for ever."""
    unary, pairwise = potentials.unary, potentials.pairwise
    terms = (*(pairwise.weights or ()), pairwise.features, pairwise.tables)
    # On the device terms may come twice, as they are and as kernels take them.
    of_terms = 2 * sum(term.nbytes for term in terms if term is not None)
    return int(of_terms + FOR_ALL * unary.nbytes + FOR_ONE * unary.nbytes // len(unary))


def configure(method: str | Decoder, options: dict[str, Any], arguments: Sequence[str] = ARGUMENTS) -> Decoder:
    """The decoder of that name with these options; ``arguments`` may have been meant by an unknown option."""
    if isinstance(method, Decoder):
        if options:
            raise InputError(f"method is already configured, so {', '.join(options)} cannot be given beside it")
        return checked(method)
    known = options_of(known_method(method))
    for option in options:
        if option not in known:
            raise unknown(f"option of {method}", option, [*known, *arguments])
    if all(value is None or type(value) in PLAIN for value in options.values()):
        return _configured(DECODERS[method], **options)
    return checked(DECODERS[method](**options))


@lru_cache(maxsize=64, typed=True)  # a decoder never changes, and checking its options takes as long as a launch
def _configured(kind: type[Decoder], **options: Any) -> Decoder:
    return checked(kind(**options))


def known_method(method: Any) -> str:
    """The name of a decoder, or an error with the nearest one: other cases and ``_`` are no difference."""
    if isinstance(method, type) and issubclass(method, Decoder):
        name = method.__name__
        raise InputTypeError(f"method is the class {name}, expected a decoder: call it, as in {name}()")
    if not isinstance(method, str):
        raise InputTypeError(f"method is a {type(method).__name__}, expected a decoder or its name")
    if method in DECODERS:
        return method
    letters = {re.sub("[^a-z]", "", name): name for name in DECODERS}
    if near := letters.get(re.sub("[^a-z]", "", method.lower())):
        raise InputError(f"unknown method {method!r}: did you mean {near!r}?")
    raise unknown("method", method, DECODERS)


def result_of(
    potentials: Potentials, problem: Problem, decoder: Decoder, outcome: Outcome, status: Status, watch: Stopwatch
) -> Result:
    """Return flat arrays in the caller's shape and kind, with masked sites marked; stop the watch."""
    watch.stop()
    outcome.labels = cast(outcome.labels, "int64")
    if potentials.forbids_pairs and is_forbidden(problem, outcome.labels):
        status = Status.FORBIDDEN
    labels, probability, samples = outcome.labels, outcome.probability, outcome.samples
    if samples is not None:
        samples = label_maps(potentials, problem, samples)
    ending = partial(_ending, outcome.climbs or outcome.n_sweeps, status, watch)
    masked = problem.potentials.masked
    if masked is not None:
        where = namespace(labels).where
        labels = where(masked, -1, labels)
        probability = None if probability is None else where(masked[:, :, None], 0, probability)
    restore, unflatten = potentials.restore, potentials.unflatten
    log_partition: Any = outcome.log_partition
    if log_partition is not None:
        log_partition = restore(log_partition) if potentials.batched else float(log_partition[0])
    return Result(
        labels=restore(unflatten(labels)),
        probability=None if probability is None else restore(unflatten(probability)),
        method=decoder.name,
        backend=problem.kernels.name,
        device=problem.kernels.device or "cpu",
        n_samples=outcome.n_samples,
        noise=outcome.noise,
        log_partition=log_partition,
        log_partition_kind=outcome.log_partition_kind,
        samples=samples,
        ending=ending if problem.kernels.device else ending(),
        potentials=potentials,
    )


def label_maps(potentials: Potentials, problem: Problem, samples: Any) -> Any:
    """Return samples (R, N, S) in the caller's shape and kind, (R, ..), with masked sites -1."""
    masked, xp = problem.potentials.masked, namespace(samples)
    if masked is not None:
        samples = xp.where(masked, -1, samples)
    return potentials.restore(xp.stack([potentials.unflatten(sample) for sample in samples]))


def _ending(sweeps: Climbs | float, status: Status, watch: Stopwatch) -> Ending:
    """How the run ended, which for climbs on a GPU is only known when they have."""
    if isinstance(sweeps, Climbs):
        sweeps, cut = sweeps.read()
        if cut and status not in (Status.MAX_SECONDS, Status.FORBIDDEN):
            status = Status.CLIMBS_CUT
    return Ending(status, watch.seconds, sweeps)
