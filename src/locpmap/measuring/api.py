"""`measure`: the distribution of a quantity of label maps, estimated from samples.

A sample of LocPMAP is a complete label map y^m. The values f(y^1) .. f(y^M) therefore estimate the distribution of any
function f of a map. Per-pixel probabilities do not determine it, because they do not contain correlations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array, frozen, to_numpy
from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.inference import LocPMAP
from locpmap.inference.api import check_first_image
from locpmap.inference.samples import stream_samples
from locpmap.measuring.measurement import Measurement, checked_levels
from locpmap.measuring.quantities import NAMES, OF_VOLUMES, PerLabel, named_quantity, unit_of
from locpmap.potentials import Potentials
from locpmap.progress import reporting
from locpmap.result import Result, kept_samples

MEASURING = LocPMAP(n_samples=200)
MAX_VALUES = 2**27  # largest number of values in a measurement (1 GB)


def measure(
    what: Result | Potentials,
    quantity: str | Callable[[Array], Any],
    decoder: LocPMAP = MEASURING,
    *,
    seed: int = 0,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    names: Sequence[str] | None = None,
    first_image: int = 0,
    device: str = "auto",
    progress: bool | Callable[[int, int], None] | None = None,
) -> Measurement:
    """Measure a quantity of label maps, with its uncertainty.

    The quantity is evaluated in every sampled label map. The result holds its mean, standard deviation and quantiles
    over the samples, per image and label.

    Args:
        what (Potentials or Result): Potentials to sample from with LocPMAP, or a result that holds samples
            (``keep_samples=True``). With a result, ``decoder``, ``seed``, ``first_image``
            and ``device`` must have their defaults, because no samples are drawn. Samples of ``gibbs`` are correlated,
            so their standard error is too small.
        quantity (str or callable): One of

            - "area": the number of sites per label;
            - "presence": 1 for labels that occur and 0 for others, so that the mean is the probability of occurring;
            - "components": the number of connected components per label;
            - "perimeter": the number of edges per label to sites with another label. The image border is excluded;
            - "volume": the volume per label of a volume: number of voxels times the volume of a voxel, in mm³ for a
              ``spacing`` in mm, and in voxels without a spacing;
            - "surface": the area per label of its surface to other labels of a volume, by Crofton's formula with 13
              directions. The border of the volume is excluded.

            A callable takes one label map, int64 (H, W), (D, H, W) on a volume or (S,) on a graph, and returns a number
            or a vector of fixed length. A site of a grid has 4 neighbours here and one of a volume 6, whatever the
            connectivity of the model. Masked sites have label -1; the named quantities ignore them.
        decoder (LocPMAP): The sampler for potentials. The default draws 200 samples. Its option ``fields``
            (:class:`locpmap.ErrorFields`) adds errors that sites share; without them, the uncertainty of areas is often
            too small.
        seed (int, default 0): Seed of the random generator.
        quantiles (sequence of float, default (0.05, 0.5, 0.95)): Levels, from 0 to 1, of the quantiles in the result.
        names (sequence of str, default None): Names of the labels, or of the entries of the callable's vector, for the
            printed table. The default is their indices.
        first_image (int, default 0): Index of the first image in the random generator, as in :func:`locpmap.infer`.
        device (str, default "auto"): As in :func:`locpmap.infer`.
        progress (bool or callable, default None): True shows a progress bar. A callable is called as
            ``progress(samples measured, samples)``, over all images.

    Returns:
        Measurement: Values (M, K) for M samples and K labels or entries, (M, N, K) for a batch, with their statistics.

    Raises:
        InputError: If an argument has a wrong shape or value, a result does not hold samples, or an argument for
            sampling is given with a result.
        InputTypeError: If an argument has a wrong type.

    Notes:
        Samples are drawn image by image and are not stored. Memory holds the values and one round of samples of one
        image (at most 64 on the CPU).

        The values of an image do not depend on the rest of the batch. The samples equal those of
        :func:`locpmap.infer`, with one exception. For more than two labels, the kind of noise depends on whether a
        Potts weight is negative: ``infer`` checks all images of the batch, ``measure`` each image on its own.

        Cost per sample, in addition to sampling: O(S) for "area", "presence" and "volume", O(13 · S) for "surface",
        O(S + E) for "perimeter", and for "components" O(S) on a grid and O(S + E) on a graph.

    Example:
        >>> unary = np.zeros((8, 8, 2))
        >>> unary[2:6, 2:6, 1] = 3.0
        >>> unary[..., 0] += 1.0
        >>> pot = lp.Potentials.grid(unary, 0.5)
        >>> area = lp.measure(pot, "area", lp.LocPMAP(n_samples=400), seed=0)
        >>> low, high = area.interval(0.9)
        >>> bool(low[1] < area.mean[1] < high[1])
        True
        >>> result = lp.infer(pot, "locpmap", n_samples=400, seed=0, keep_samples=True)
        >>> bool((lp.measure(result, "area").mean == area.mean).all())
        True
        >>> lp.measure(pot, lambda labels: (labels[:, :4] == 1).sum()).mean.shape
        (1,)

    See Also:
        :meth:`locpmap.Refiner.measure`, for an image and a network's logits.
    """
    if not isinstance(what, Result | Potentials):
        raise InputTypeError(f"what is a {type(what).__name__}, expected Potentials, or a Result that holds samples")
    potentials = what.potentials if isinstance(what, Result) else what
    levels, meter = checked_levels(quantiles), Meter.of(quantity, potentials)
    _check_names(names, meter.length)
    if isinstance(what, Result):
        drawn = {"decoder": decoder is not MEASURING, "seed": seed != 0, "first_image": first_image != 0}
        drawn["device"] = device != "auto"
        if wrong := ", ".join(name for name, given in drawn.items() if given):
            raise InputError(f"what is a Result of {what.method}, which already holds samples: {wrong} cannot be given")
        with reporting(progress, meter.name) as meter.progress:
            found = _of_result(what, meter)
    else:
        if not isinstance(decoder, LocPMAP):
            raise InputTypeError(
                f"decoder is {decoder!r}, expected a LocPMAP: for other decoders pass a Result that holds samples"
            )
        noise = whole_number("seed", seed, 0, 2**64 - 1), check_first_image(first_image, what.n_images)
        meter.total = decoder.n_samples * what.n_images
        n_values = meter.total * (meter.length or 1)
        if n_values > MAX_VALUES:
            raise InputError(
                f"n_samples is {decoder.n_samples}, which gives {n_values} values for {what.n_images} images, expected"
                f" at most {MAX_VALUES}"
            )
        if decoder.fields is not None:
            decoder.fields.on(what)  # raises before any sample is drawn
        with reporting(progress, meter.name) as meter.progress:
            found = _of_potentials(what, meter, decoder, noise, device)
    values = np.stack([np.stack(image) for image in found], axis=1)  # (M, N, K)
    _check_names(names, meter.length)
    return Measurement(
        quantity=meter.name,
        values=frozen(values if potentials.batched else values[:, 0]),
        names=tuple(map(str, range(values.shape[2]))) if names is None else tuple(names),
        levels=levels,
        source=what.source if isinstance(what, Result) else None,
        unit=unit_of(meter.name, potentials.structure) if isinstance(quantity, str) else "",
    )


def quantity_name(quantity: object) -> str:
    """Return the name of a quantity: that of a string, a function, or the class of another callable."""
    return quantity if isinstance(quantity, str) else getattr(quantity, "__name__", type(quantity).__name__)


@dataclass
class Meter:
    """A quantity as a function of flat samples, with checks of its value and progress reports."""

    name: str
    quantity: PerLabel
    shape: tuple[int, ...]
    length: int | None = None  # of the vectors; unknown for a callable until its first call
    progress: Callable[[int, int], None] | None = None
    done: int = 0
    total: int = 0  # samples over all images

    @classmethod
    def of(cls, quantity: object, potentials: Potentials) -> Self:
        """Return the meter of a named quantity or of a callable."""
        structure = potentials.structure
        if isinstance(quantity, str):
            n_labels = potentials.n_labels
            return cls(quantity, named_quantity(quantity, structure, n_labels), structure.shape, n_labels)
        if not callable(quantity):
            names = ", ".join(map(repr, NAMES + OF_VOLUMES))
            raise InputTypeError(f"quantity is {quantity!r}, expected {names}, or a callable that takes a label map")
        return cls(quantity_name(quantity), quantity, structure.shape)

    def __call__(self, sample: Array) -> Array:
        """Return the quantity of one labelling (S,) as a vector (K,); a callable receives a copy of the map."""
        answer = to_numpy(self.quantity(sample.astype(np.int64).reshape(self.shape)), "the value of quantity")
        if answer.ndim > 1 or not answer.size:
            raise InputError(f"quantity returned an array of shape {answer.shape}, expected a number or a vector")
        vector = np.array(answer, np.float64, ndmin=1)
        if self.length is not None and len(vector) != self.length:
            raise InputError(f"quantity returned {len(vector)} numbers, expected {self.length} as for the first map")
        if not np.isfinite(vector).all():
            raise InputError(f"quantity returned {vector[~np.isfinite(vector)][0]}, expected finite numbers")
        self.length = len(vector)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
        return vector


def _of_result(result: Result, meter: Meter) -> list[list[Array]]:
    """Return the values in a result's samples: one vector (K,) per image and sample."""
    samples, potentials = kept_samples(result), result.potentials
    n_samples = len(samples)
    meter.total = n_samples * potentials.n_images
    flat = samples.reshape(n_samples, potentials.n_images, potentials.n_sites)
    return [list(map(meter, to_numpy(flat[:, n], "samples"))) for n in range(potentials.n_images)]


def _of_potentials(
    potentials: Potentials, meter: Meter, decoder: LocPMAP, noise: tuple[int, int], device: str
) -> list[list[Array]]:
    """Sample the potentials image by image, and return one vector (K,) per image and sample."""
    start, (seed, first_image), fields = decoder.start, noise, decoder.fields
    if not isinstance(start, str):  # labels, with or without a batch axis
        start = potentials.flat_labels(start, "start").reshape(-1, *potentials.structure.shape)
    found: list[list[Array]] = []
    for n in range(potentials.n_images):
        mine = None if fields is None else fields.of_image(n)
        own = replace(decoder, start=start if isinstance(start, str) else start[n], fields=mine)
        image, number = replace(potentials.part(slice(n, n + 1)), batched=False), first_image + n
        parts = stream_samples(image, own, own.n_samples, seed, number, device=device, counted=False)
        drawn = (labels for part in parts for labels in to_numpy(part, "samples"))
        found.append(list(map(meter, drawn)))
    return found


def _check_names(names: object, length: int | None) -> None:
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"names is {names!r}, expected a sequence of strings")
    if length is not None and len(names) != length:
        raise InputError(f"names has {len(names)} entries, expected {length}: one per label or entry of the quantity")
