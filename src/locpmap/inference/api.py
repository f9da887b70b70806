"""The function :func:`infer`, common to all decoders."""

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
from locpmap.progress import reporting
from locpmap.result import Ending, Result, Status

PLAIN = (bool, int, float, str)
# GPU memory as multiples of the unaries.  FOR_ALL counts unaries, totals, probabilities and messages of all images (two
# edges per site, both directions); FOR_ONE counts perturbed scores of eight samples, and edge lists, of one image.
FOR_ALL, FOR_ONE = 8, 16
# Keyword arguments of `infer`: a misspelt one arrives among the decoder's options.
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
    progress: bool | Progress | None = None,
    **options: Any,
) -> Result:
    """Decode a model: compute labels and, for most decoders, probabilities.

    Args:
        potentials (Potentials): Model to decode.
        method (str or Decoder, default "locpmap"): Name of a decoder, whose options are passed as further arguments, or
            a configured decoder such as ``LocPMAP(n_samples=100)``.
        seed (int, default 0): Seed of the random generator, from 0 to 2^64 - 1.  Equal seeds give identical results for
            any number of threads.
        backend (str, default "auto"): "auto", "reference" (NumPy), "numba" (CPU) or "triton" (NVIDIA GPU).
        device (str, default "auto"): "cpu", "cuda" or "auto".  With "auto", potentials on an NVIDIA GPU are decoded
            there if the method supports it.  Large potentials on the CPU are copied to a GPU if one is available.
            All others are decoded on the CPU.
        first_image (int, default 0): Index of the first image in the random generator.  Images 100 onwards of a batch,
            decoded on their own with ``first_image=100``, give the same results as within the batch.  LocPMAP draws
            other noise if a Potts weight of the batch is negative (``result.noise``).
        max_seconds (float, default None): Time limit.  The run stops after the first step that exceeds it and returns
            the result so far.  A step of ``gibbs``, ``annealing`` or message passing is one sweep on the CPU, and up to
            64 on a GPU.  A step of ``locpmap`` draws up to 64 samples, fewer if images are large: with the
            default of 50 samples, it is the whole run on images of up to 2.5 megapixels per thread (0.6 with error
            fields).  Compiling counts.
            ``exact`` has no partial result and raises InputError.
        n_threads (int, default None): Number of threads; None uses all available cores.
        progress (bool or callable, default None): True shows a progress bar.  A function is called as
            ``progress(done, total)`` after every step.  The unit depends on the decoder: samples (locpmap, icm_iter,
            perturb_and_map, perturb_and_max_product), images or expansion moves (graph_cut), table entries (exact), and
            sweeps for all others.
        **options: Options of the decoder; see its class.

    Returns:
        Result: Labels, probabilities and information about the run.  Tensors carry no gradient.

    Raises:
        InputError: If an argument has an invalid value, or the decoder cannot decode the model.  Its subclass
            TooLargeError is raised if an exact method or a block needs too large a table.
        InputTypeError: If an argument has the wrong type.
        BackendError: If the requested backend or device is not available.

    Notes:
        The first run of a decoder compiles its kernels, once per precision.  Compilation takes seconds and is included
        in ``result.seconds``.  Compiled kernels are cached on disk.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 1.0]]]), 1.0)
        >>> lp.infer(pot, "exact").labels
        array([[1, 1, 1]])
        >>> lp.infer(pot, "locpmap", n_samples=100, seed=0).labels
        array([[1, 1, 1]])

    See Also:
        :func:`samples`, :func:`infer_tiled`, :func:`measure`, :class:`LocPMAP`
    """
    decoder = configure(method, options)
    if max_seconds is not None:
        within("max_seconds", max_seconds, 0)
    began = time.perf_counter()
    problem = make_problem(potentials, decoder, seed, first_image, backend, device, n_threads)
    with closing(problem), current_device(problem.potentials.unary), reporting(progress, decoder.name) as report:
        watch = Stopwatch(problem.potentials.unary, began)
        outcome, status = drive_in_memory(decoder, problem, max_seconds, report)
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
    """Check the arguments, choose a device and return the problem, which the caller closes."""
    if not isinstance(potentials, Potentials):
        raise InputTypeError(
            f"potentials is a {type(potentials).__name__}, expected Potentials, from Potentials.grid or .graph"
        )
    first_image = check_first_image(first_image, potentials.n_images)
    if n_threads is not None:
        whole_number("n_threads", n_threads, 1)
    key = key_of(seed)
    kernels = place_decoding(potentials, decoder, backend, device, n_threads)
    return Problem(potentials.to(kernels.device), kernels, key, first_image)


def check_first_image(first_image: int, n_images: int) -> int:
    """Return the index of the first image, or raise if the last one exceeds the counter of the noise."""
    first = whole_number("first_image", first_image, 0, 2**28)
    if first + n_images > 2**28:
        raise InputError(f"first_image is {first}, expected first_image + the batch to stay below 2^28")
    return first


def place_decoding(
    potentials: Potentials, decoder: Decoder, backend: str, device: str, n_threads: int | None = None
) -> Kernels:
    """Choose backend and device.  Decoders without GPU kernels run on the CPU."""
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
    """Return a rough lower bound of the GPU memory that decoding needs, with the smallest rounds of samples."""
    unary, pairwise = potentials.unary, potentials.pairwise
    terms = (*(pairwise.weights or ()), pairwise.features, pairwise.tables)
    # The device may store pairwise terms twice: in the given layout and in that of the kernels.
    of_terms = 2 * sum(term.nbytes for term in terms if term is not None)
    return int(of_terms + FOR_ALL * unary.nbytes + FOR_ONE * unary.nbytes // len(unary))


def configure(method: str | Decoder, options: dict[str, Any], arguments: Sequence[str] = ARGUMENTS) -> Decoder:
    """Return the decoder with its options.  ``arguments`` are further suggestions for an unknown option."""
    if isinstance(method, Decoder):
        if options:
            raise InputError(f"method is already configured, so {', '.join(options)} cannot be passed as well")
        return checked(method)
    known = options_of(known_method(method))
    for option in options:
        if option not in known:
            raise unknown(f"option of {method}", option, [*known, *arguments])
    if all(value is None or type(value) in PLAIN for value in options.values()):
        return _configured(DECODERS[method], **options)
    return checked(DECODERS[method](**options))


@lru_cache(maxsize=64, typed=True)  # decoders are immutable, and checking options takes as long as a launch
def _configured(kind: type[Decoder], **options: Any) -> Decoder:
    return checked(kind(**options))


def known_method(method: Any) -> str:
    """Return the name of a decoder, or raise with the nearest one.  Case and ``_`` are ignored in the search."""
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
    """Stop the watch and return the result in the caller's shape and kind of array, with masked sites marked."""
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

    def per_image(values: Any) -> Any:
        return values if values is None else restore(values) if potentials.batched else float(values[0])

    return Result(
        labels=restore(unflatten(labels)),
        probability=None if probability is None else restore(unflatten(probability)),
        method=decoder.name,
        backend=problem.kernels.name,
        device=problem.kernels.device or "cpu",
        n_samples=outcome.n_samples,
        noise=outcome.noise,
        log_partition=per_image(outcome.log_partition),
        log_partition_kind=outcome.log_partition_kind,
        log_partition_error=per_image(outcome.log_partition_error),
        bound=per_image(outcome.bound),
        samples=samples,
        r_hat=per_image(outcome.r_hat),
        n_effective=per_image(outcome.n_effective),
        ending=ending if problem.kernels.device else ending(),
        potentials=potentials,
    )


def label_maps(potentials: Potentials, problem: Problem, samples: Any) -> Any:
    """Return samples (R, N, S) in the caller's shape and kind of array, with label -1 at masked sites."""
    masked, xp = problem.potentials.masked, namespace(samples)
    if masked is not None:
        samples = xp.where(masked, -1, samples)
    return potentials.restore(xp.stack([potentials.unflatten(sample) for sample in samples]))


def _ending(sweeps: Climbs | float, status: Status, watch: Stopwatch) -> Ending:
    """Return the ending of a run.  For climbs on a GPU this waits for the device."""
    if isinstance(sweeps, Climbs):
        sweeps, cut = sweeps.read()
        if cut and status not in (Status.MAX_SECONDS, Status.FORBIDDEN):
            status = Status.CLIMBS_CUT
    return Ending(status, watch.seconds, sweeps)
