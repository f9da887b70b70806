"""`measure`: a quantity of label maps, with its uncertainty, from whole samples.

A sample of LocPMAP is a whole label map y^m, so whatever f computes from a map has a distribution, that of
f(y^1) .. f(y^M).  Probabilities per pixel do not tell it: they do not say which pixels go together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore, frozen, to_numpy
from locpmap.errors import InputError, InputTypeError, whole_number, within
from locpmap.inference import LocPMAP
from locpmap.inference.api import check_first_image
from locpmap.inference.samples import stream_samples
from locpmap.measuring.measurement import Measurement, checked_levels
from locpmap.measuring.quantities import NAMES, PerLabel, named_quantity
from locpmap.measuring.shared import shared_samples
from locpmap.potentials import Potentials
from locpmap.result import Result

MEASURING = LocPMAP(n_samples=200)
MOST_VALUES = 2**27  # numbers that a measurement holds: 1 GB
LEAST_PRESENCE = 1e-6


def measure(
    what: Result | Potentials,
    quantity: str | Callable[[Array], Any],
    decoder: LocPMAP = MEASURING,
    *,
    seed: int = 0,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    names: Sequence[str] | None = None,
    shared: float = 0.0,
    presence: Any = None,
    first_image: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Measure a quantity in sampled label maps: per image and label its mean, spread and quantiles.

    Args:
        what: Potentials, from which LocPMAP draws samples; or a result that holds samples (``keep_samples=True``), of
            which all are measured.  Those of ``gibbs`` depend on one another: the standard error is too small.
        quantity: "area" (sites per label), "presence" (1 where the label occurs, so that the mean is its probability),
            "components" (connected parts per label), "perimeter" (edges from a site with the label to one with
            another, so that the border of the image does not count), or a callable that takes one label map, int64
            (H, W) or on a graph (S,), and returns a number or a vector, always of one length.  Neighbours are four on
            a grid, whatever the model's connectivity, and on a graph those of its edges.  Masked sites have label -1
            and count for nothing, also as neighbours.
        decoder: A :class:`locpmap.LocPMAP`, which draws the samples from potentials; 200 of them by default.
        seed: Seed of the noise.
        quantiles: Levels of ``quantiles``, numbers from 0 to 1.
        names: Names of the labels (or of the entries of the callable's vector) in the printed table; numbers by
            default.
        shared: Standard deviation of an offset that every sample adds to the scores of each label, the same at all
            sites of an image: the error that they share, and without which areas look too certain.  Learned by
            :meth:`locpmap.Refiner.fit` with ``objective="area"``, and used by :meth:`locpmap.Refiner.measure`.
            Where no neighbours are coupled, labels are drawn independently given these offsets, without climbing.
        presence: None, or for each label, (L,) or (N, L), the probability that it is in the image at all: a number
            from 1e-6 to 1, and 1 for at least one label.  A label is left out of that share of the samples, and its
            scores are raised in the others so that its mean weight stays the same.  Without it, an absent label that
            has some probability everywhere has some area in every sample.  Learned and used like ``shared``; refused
            together with scores of -inf.
        first_image: Number of the first image in the noise's keys, as in :func:`locpmap.infer`.
        device: As in :func:`locpmap.infer`.
        progress: Called with (samples measured, samples in all), of all images together.

    Samples are drawn image by image, measured as they come and forgotten: memory holds the M numbers per label and one
    round of samples of one image (64 at most on the CPU), and the numbers of an image do not depend on the batch it is
    in.  They are those of :func:`locpmap.infer` on the batch, except where the noise is chosen otherwise for the image
    alone: more than two labels, and negative Potts weights in other images only.
    Beside drawing, a sample costs O(S), "perimeter" O(S + E), "components" O(S) per label that occurs.

    >>> import locpmap as lp
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
    """
    if not isinstance(what, Result | Potentials):
        raise InputTypeError(f"what is a {type(what).__name__}, expected Potentials, or a Result that holds samples")
    potentials = what.potentials if isinstance(what, Result) else what
    levels, meter = checked_levels(quantiles), Meter.of(quantity, potentials)
    if progress is not None and not callable(progress):
        raise InputTypeError(f"progress is {progress!r}, expected a callable that takes (done, total)")
    meter.progress = progress
    _check_names(names, meter.length)
    if isinstance(what, Result):
        drawn = {"decoder": decoder is not MEASURING, "seed": seed != 0, "first_image": first_image != 0}
        drawn |= {"shared": shared != 0, "presence": presence is not None, "device": device != "auto"}
        if wrong := ", ".join(name for name, given in drawn.items() if given):
            raise InputError(f"what is a Result of {what.method}, whose samples are drawn: {wrong} cannot be given")
        found = _of_result(what, meter)
    else:
        if not isinstance(decoder, LocPMAP):
            raise InputTypeError(
                f"decoder is {decoder!r}, expected a LocPMAP: samples of others are measured in a Result with them"
            )
        noise = whole_number("seed", seed, 0, 2**64 - 1), check_first_image(first_image, what.n_images)
        within("shared", shared, 0)
        meter.total = decoder.n_samples * what.n_images
        n_values = meter.total * (meter.length or 1)
        if n_values > MOST_VALUES:
            raise InputError(
                f"n_samples is {decoder.n_samples}, which makes {n_values} numbers of {what.n_images} images, expected"
                f" at most {MOST_VALUES}"
            )
        errors = float(shared), _checked_presence(presence, what)
        found = _of_potentials(what, meter, decoder, noise, errors, device)
    values = np.stack([np.stack(image) for image in found], axis=1)  # (M, N, K)
    _check_names(names, meter.length)
    return Measurement(
        quantity=meter.name,
        values=frozen(values if potentials.batched else values[:, 0]),
        names=tuple(map(str, range(values.shape[2]))) if names is None else tuple(names),
        levels=levels,
    )


@dataclass
class Meter:
    """A quantity of label maps as a checked function of flat samples."""

    name: str
    quantity: PerLabel
    shape: tuple[int, ...]
    length: int | None = None  # of the vectors; of a callable's, once there was one
    progress: Callable[[int, int], None] | None = None
    done: int = 0
    total: int = 0  # samples that will come

    @classmethod
    def of(cls, quantity: object, potentials: Potentials) -> Meter:
        """Return the meter of a named quantity or of a callable."""
        structure = potentials.structure
        if isinstance(quantity, str):
            n_labels = potentials.n_labels
            return cls(quantity, named_quantity(quantity, structure, n_labels), structure.shape, n_labels)
        if not callable(quantity):
            names = ", ".join(map(repr, NAMES))
            raise InputTypeError(f"quantity is {quantity!r}, expected {names}, or a callable that takes a label map")
        return cls(getattr(quantity, "__name__", type(quantity).__name__), quantity, structure.shape)

    def __call__(self, sample: Array) -> Array:
        """Return the quantity of one labelling (S,) as a vector (K,); a callable gets a copy of the map."""
        answer = to_numpy(self.quantity(sample.astype(np.int64).reshape(self.shape)), "what quantity returned")
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
    """Measure in the samples that a result holds: per image and sample, (K,)."""
    if result.samples is None:
        raise InputError(f"what is a Result of {result.method} without samples, expected one with keep_samples=True")
    potentials, n_samples = result.potentials, len(result.samples)
    meter.total = n_samples * potentials.n_images
    flat = result.samples.reshape(n_samples, potentials.n_images, potentials.n_sites)
    return [list(map(meter, to_numpy(flat[:, n], "samples"))) for n in range(potentials.n_images)]


def _of_potentials(
    potentials: Potentials,
    meter: Meter,
    decoder: LocPMAP,
    noise: tuple[int, int],
    errors: tuple[float, Array | None],
    device: str,
) -> list[list[Array]]:
    """Measure in samples that LocPMAP draws, image by image: per image and sample, (K,)."""
    start, (seed, first_image), (shared, presence) = _start(decoder.start, potentials), noise, errors
    found: list[list[Array]] = []
    for n in range(potentials.n_images):
        own = replace(decoder, start=start if isinstance(start, str) else start[n])
        image, number = replace(potentials.part(slice(n, n + 1)), batched=False), first_image + n
        if shared > 0 or presence is not None:
            there = None if presence is None else presence[n]
            drawn = shared_samples(image, own, shared, there, number, seed, device)
        else:
            parts = stream_samples(image, own, own.n_samples, seed, number, device=device, counted=False)
            drawn = (labels for part in parts for labels in to_numpy(part, "samples"))
        found.append(list(map(meter, drawn)))
    return found


def _checked_presence(presence: Any, potentials: Potentials) -> Array | None:
    """Return the checked presence, (N, L), or None."""
    if presence is None:
        return None
    array, shape = to_numpy(presence, "presence").astype(np.float64), (potentials.n_images, potentials.n_labels)
    if array.shape not in (shape, shape[1:]):
        raise InputError(f"presence has shape {array.shape}, expected {shape[1:]}, or {shape} for each image")
    if not ((array >= LEAST_PRESENCE) & (array <= 1)).all():
        raise InputError(f"presence holds other numbers than {LEAST_PRESENCE:g} to 1, expected probabilities")
    if not (array == 1).any(axis=-1).all():
        raise InputError("presence is below 1 for all labels, expected 1 for one of them: something is there")
    forbidden = Restore()((potentials.unary == -np.inf).any(axis=2))  # at masked sites all labels but one are
    if (forbidden if potentials.masked is None else forbidden & ~Restore()(potentials.masked)).any():
        raise InputError("presence is given beside scores of -inf, expected finite scores: no label may be left")
    return np.broadcast_to(array, shape)


def _start(start: Any, potentials: Potentials) -> Any:
    """Return a start's name, or labels (N, ..)."""
    if isinstance(start, str):
        return start
    return potentials.flat_labels(start, "start").reshape(-1, *potentials.structure.shape)


def _check_names(names: object, length: int | None) -> None:
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"names is {names!r}, expected a sequence of strings")
    if length is not None and len(names) != length:
        raise InputError(f"names has {len(names)} entries, expected {length}: one per label or entry of the quantity")
