"""Calibration of a refiner on labelled images, for guarantees."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.errors import InputError, InputTypeError
from locpmap.guarantees import Guarantee, Source
from locpmap.guarantees.conformal import images_needed
from locpmap.guarantees.intervals import N_SAMPLES, Calibration, Moments
from locpmap.guarantees.thresholds import pixel_losses
from locpmap.inference import LocPMAP
from locpmap.kernels.threads import available_threads
from locpmap.measuring import measure
from locpmap.measuring.api import Meter, quantity_name
from locpmap.measuring.quantities import NAMES, OF_VOLUMES
from locpmap.refining.examples import VOID, Example
from locpmap.refining.prepared import Prepared
from locpmap.refining.weights import Adjustment, Weights

Quantity = str | Callable[[Array], Any]
QUANTITIES: tuple[Quantity, ...] = ("area", "components", "perimeter")
VOLUME_QUANTITIES: tuple[Quantity, ...] = ("volume", "components", "surface")
LEVEL = 0.9  # for which a guarantee needs enough images


def calibrated(
    examples: Sequence[Example],
    weights: Weights,
    adjustment: Adjustment,
    quantities: Sequence[Quantity] | None = None,
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> Guarantee:
    """Measure all quantities in samples of the examples and in their true labels, without void pixels.

    ``progress`` is called with the number of images done, the number of images, and the mean fraction of wrong pixels.
    Cost: 50 samples of every image.
    """
    labelled = [example for example in examples if (example.labels != VOID).any()]
    if (n := len(labelled)) < (least := images_needed(LEVEL)):
        raise InputError(f"a guarantee of {LEVEL} needs at least {least} labelled images, and there are {n}")
    if quantities is None:
        quantities = QUANTITIES if labelled[0].given.spacing is None else VOLUME_QUANTITIES
    if isinstance(quantities, str) or not isinstance(quantities, Sequence) or not quantities:
        raise InputTypeError(f"quantities is {quantities!r}, expected a sequence of names or functions")
    names = list(map(quantity_name, quantities))
    if len(set(names)) < len(names):
        raise InputError(f"quantities has the names {', '.join(names)}, expected different ones")
    for name, quantity in zip(names, quantities, strict=True):
        own = hasattr(quantity, "__name__") and name.isidentifier() and name not in NAMES + OF_VOLUMES
        if callable(quantity) and not own:
            raise InputError(f"quantities has a function called {name!r}, expected one with a name of its own")
    found: list[Measured] = []
    with ThreadPoolExecutor(available_threads()) as pool:
        for one in pool.map(lambda example: measured(example, weights, adjustment, quantities, seed), labelled):
            found.append(one)
            if progress is not None:
                progress(len(found), n, float(np.mean([each.errors[0] for each in found])))
    rows = {name: [one.quantities[k] for one in found] for k, name in enumerate(names)}
    for name, row in rows.items():
        if len(lengths := sorted({len(true) for *_, true in row})) > 1:
            raise InputError(f"{name} has {lengths[0]} to {lengths[-1]} entries, expected as many in every image")
    parts = {name: map(np.stack, zip(*row, strict=True)) for name, row in rows.items()}
    calibrations = {name: Calibration(Moments(mean, std), true) for name, (mean, std, true) in parts.items()}
    misses, errors = (np.mean([getattr(one, name) for one in found], axis=0) for name in ("misses", "errors"))
    return Guarantee(calibrations, misses, errors, n, source_of(labelled, weights.identity(adjustment)))


def source_of(examples: Sequence[Example], refiner: str) -> Source:
    """Return the kind of input that examples have: the median stride, and the range of spacings."""
    given, stride = examples[0].given, float(np.median([example.stride for example in examples]))
    sides = np.array([example.given.spacing or () for example in examples], np.float64)  # (n, 3), or (n, 0) of images
    ends = (tuple(end.tolist()) for end in (sides.min(axis=0), sides.max(axis=0)))
    return Source(refiner, given.scores.shape[-1], stride, given.image is not None, *ends)


class Measured(NamedTuple):
    """Statistics of one image for a guarantee."""

    quantities: list[tuple[Array, Array, Array]]  # mean and standard deviation of samples, true value
    misses: Array  # of `pixel_losses`, as the next
    errors: Array


def measured(
    example: Example, weights: Weights, adjustment: Adjustment, quantities: Sequence[Quantity], seed: int
) -> Measured:
    """Measure quantities in samples of an example and in its true labels."""
    void = example.labels == VOID
    prepared = Prepared.of(example.given, weights, adjustment, mask=void if void.any() else None, stride=example.stride)
    result = prepared.refine(LocPMAP(N_SAMPLES, start="perturbed", keep_samples=True), seed=seed)
    found = []
    for quantity in quantities:
        true = Meter.of(quantity, prepared.potentials)(example.labels.ravel())
        found.append((*Moments.of(measure(result, quantity).values), true))
    return Measured(found, *pixel_losses(Restore()(result.probability)[~void], example.labels[~void]))


def set_aside(examples: list[Example], fraction: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Return the examples for a fit, and those for a guarantee: a random fraction of the labelled ones, rounded up."""
    labelled = [n for n, example in enumerate(examples) if (example.labels != VOID).any()]
    n = int(np.ceil(fraction * len(labelled)))
    if 0 < n < (least := images_needed(LEVEL)):
        raise InputError(
            f"guarantee is {fraction:g}, which is {n} of {len(labelled)} labelled images, expected at least {least} for"
            f" a guarantee of {LEVEL}"
        )
    if n and len({examples[k].group for k in labelled}) < len(labelled):
        raise InputError(f"guarantee is {fraction:g} and groups are given, expected 0: images must be independent")
    if n == len(labelled):
        raise InputError(f"guarantee is {fraction:g}, which is all {n} labelled images, expected some for the fit")
    reserved = set(np.random.default_rng((seed, 1)).permutation(labelled)[:n].tolist())
    return [one for k, one in enumerate(examples) if k not in reserved], [examples[k] for k in sorted(reserved)]


def digest(example: Example) -> str:
    """Return a checksum of an example's scores and labels, by which it is recognised in later calls."""
    return hashlib.sha256(example.scores.tobytes() + example.labels.tobytes()).hexdigest()[:16]


def refuse_known(examples: Sequence[Example], fitted_on: Sequence[str]) -> None:
    """Raise if an example was used in a fit or occurs twice."""
    digests = [digest(example) for example in examples]
    if known := [n for n, one in enumerate(digests) if one in set(fitted_on)]:
        raise InputError(
            f"image {known[0]} is one of the images that the refiner was fitted on, expected others: a guarantee needs"
            " images that neither the network nor the refiner has seen"
        )
    if twice := [n for n, one in enumerate(digests) if one in digests[:n]]:
        raise InputError(f"image {twice[0]} occurs twice, expected different images")


def warn_of_tiles(images: Any) -> None:
    """Warn if images are tiles of one array, because neighbouring tiles are not exchangeable with other images."""
    given = images if isinstance(images, list | tuple) else ()  # a batch is no raster
    arrays = [image for image in given if isinstance(image, np.ndarray) and image.base is not None]
    first = {id(image.base): image for image in reversed(arrays)}
    if any(_side_by_side(first[id(image.base)], image) for image in arrays):
        warnings.warn(
            "images are parts of one array: tiles of a raster resemble one another, so the guarantee holds for new"
            " tiles of this raster at best, not for other rasters",
            stacklevel=3,
        )


def _side_by_side(first: Array, second: Array) -> bool:
    """Return whether two views of one array differ by columns; images of a batch differ along another axis.

    Their distance in memory is then a multiple of the largest stride or, if that axis is the last, below the smallest.
    """
    sides = [abs(stride) for stride in first.strides if stride]
    apart = second.ctypes.data - first.ctypes.data
    return bool(sides) and apart % max(sides) != 0 and apart % min(sides) == 0
