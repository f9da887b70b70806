"""`Guarantee`: statistics of calibration images, and the guarantees for new images that follow from them."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, InputTypeError
from locpmap.guarantees.conformal import check_number, controlled, images_needed
from locpmap.guarantees.intervals import ENDS, N_SAMPLES, Calibration, Moments
from locpmap.guarantees.source import Source
from locpmap.guarantees.thresholds import THRESHOLDS

VERSION = 1  # of the arrays in a file
ASSUMPTION = (
    "The new image and the calibration images are assumed to be exchangeable, for example independent draws from the"
    " same source. The probability is over the random draw of all these images."
)


WORDS_OF_VOLUMES = {"pixel": "voxel", "image": "volume", "area": "volume", "perimeter": "surface"}


def in_words_of_volumes(text: str) -> str:
    """Return a text about images as one about volumes.

    >>> in_words_of_volumes("areas of 2 images in pixels")
    'volumes of 2 volumes in voxels'
    """
    return re.sub(rf"\b({'|'.join(WORDS_OF_VOLUMES)})", lambda found: WORDS_OF_VOLUMES[found[1]], text)


@dataclass(frozen=True, eq=False)
class Guarantee:
    """Calibration of a refiner on labelled images that neither the network nor the refiner was fitted on.

    ``print(guarantee)`` states what is guaranteed, and under which assumption.

    Attributes:
        quantities (dict): Moments and true values of each quantity in the calibration images.
        misses (array): Mean fraction of pixels whose true label is less probable than each threshold.
        errors (array): Mean fraction of pixels with a wrong most probable label of at least each threshold.
        n_images (int): Number of calibration images.
        source (Source): The calibrated refiner, and the kind of its input.

    See Also:
        :meth:`locpmap.Refiner.guaranteed`, :meth:`locpmap.Measurement.interval`, :meth:`locpmap.Result.label_sets`
    """

    quantities: dict[str, Calibration]
    misses: Array
    errors: Array
    n_images: int
    source: Source

    def __str__(self) -> str:
        names, n = ", ".join(sorted(self.quantities)), self.n_images
        text = "\n".join(
            [
                f"Calibrated on {n} images: levels up to {n / (n + 1):.3f}, abstention down to {1 / (n + 1):.3f}.",
                "Intervals of level 0.9 of {names}: the true value of a label in a new image lies"
                " inside with a probability of at least 0.9; with jointly=True, those of all labels of the image do.",
                "Label sets of level 0.9: on average over new images, at least 0.9 of the pixels of an image have"
                " their true label in their set.",
                "Abstention at 0.1: on average over new images, at most 0.1 of all pixels of an image have a wrong"
                " label.",
                ASSUMPTION,
            ]
        )
        text = in_words_of_volumes(text) if self.of_volumes else text
        return text.replace("{names}", names)  # callables have names of their own

    @property
    def of_volumes(self) -> bool:
        """Whether the images are volumes, by the names of the quantities."""
        return bool(self.quantities.keys() & {"volume", "surface"})

    def __repr__(self) -> str:
        images = "volumes" if self.of_volumes else "images"
        return f"<Guarantee from {self.n_images} {images}: {', '.join(sorted(self.quantities))}>"

    def interval(self, quantity: str, values: Array, level: float, jointly: bool) -> tuple[Array, Array]:
        """Return the guaranteed interval of values (M, .., K) of a quantity, (.., K) each."""
        if quantity not in self.quantities:
            known = ", ".join(sorted(self.quantities))
            raise InputError(f"the guarantee has no quantity {quantity!r}, expected one of its own: {known}")
        calibration, shape = self.quantities[quantity], values.shape[1:]
        if len(values) < N_SAMPLES:
            raise InputError(f"the measurement has {len(values)} samples, expected at least {N_SAMPLES}")
        if shape[-1] != calibration.truth.shape[1]:
            raise InputError(f"{quantity} has {shape[-1]} entries, expected {calibration.truth.shape[1]}")
        found = Moments.of(values.reshape(len(values), -1, shape[-1]))
        rows = [calibration.interval(Moments(*row), level, jointly) for row in zip(*found, strict=True)]
        low, high = (np.stack(ends).reshape(shape) for ends in zip(*rows, strict=True))
        least, most = ENDS.get(quantity, (-np.inf, np.inf))
        if quantity in ("area", "volume"):  # at most all pixels
            most = values.sum(axis=-1).max(axis=0)[..., None]
        return np.maximum(low, least), np.minimum(high, most)

    def set_threshold(self, level: float) -> float:
        """Return the smallest probability of the labels in a set, with at most ``1 - level`` expected misses."""
        check_number(self.n_images, level)
        return float(THRESHOLDS[controlled(self.misses, self.n_images, 1 - level)].max())

    def abstention_threshold(self, risk: float) -> float:
        """Return the smallest probability of the best label at which a pixel is decided, with ``risk`` expected errors.

        It is infinite, so that no pixel is decided, if too many pixels of probability 1 are wrong.
        """
        if self.n_images < (least := images_needed(1 - risk)):
            raise InputError(
                f"abstain is {risk:g}, which needs at least {least} images, and the guarantee has {self.n_images}"
            )
        return float(THRESHOLDS[controlled(self.errors, self.n_images, risk)].min(initial=np.inf))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays for a file, by name."""
        found = {"misses": self.misses, "errors": self.errors, "input": self.source.array()}
        for name, one in self.quantities.items():
            found |= {f"mean {name}": one.moments.mean, f"std {name}": one.moments.std, f"truth {name}": one.truth}
        return found

    @classmethod
    def of_arrays(cls, arrays: dict[str, Array], refiner: str = "") -> Self:
        """Return the guarantee of a refiner with these arrays; raise if they are malformed."""
        names = [name.removeprefix("truth ") for name in arrays if name.startswith("truth ")]
        try:
            misses, errors = arrays["misses"], arrays["errors"]
            parts = {name: [arrays[f"{part} {name}"] for part in ("mean", "std", "truth")] for name in names}
        except KeyError as error:
            raise InputError(f"its guarantee has no {error.args[0]!r}") from None
        found = {name: Calibration(Moments(mean, std), truth) for name, (mean, std, truth) in parts.items()}
        shapes = {array.shape for three in parts.values() for array in three}
        lengths = {shape[0] if len(shape) == 2 else 0 for shape in shapes}
        alike = all(mean.shape == std.shape == truth.shape for mean, std, truth in parts.values())
        alike = alike and misses.shape == errors.shape == THRESHOLDS.shape
        if not alike or len(lengths) != 1 or 0 in lengths:
            raise InputError("its guarantee has arrays of wrong shapes")
        n_labels = max((found[name].truth.shape[1] for name in found.keys() & ENDS.keys()), default=0)
        source = Source.of_array(refiner, arrays["input"]) if "input" in arrays else Source(refiner, n_labels)
        return cls(found, misses, errors, lengths.pop(), source)


def guarantee_of(given: object, source: Source | None) -> Guarantee:
    """Return a guarantee, or that of a refiner; raise if there is none, or if the samples have another source."""
    found = given if isinstance(given, Guarantee) else getattr(given, "guarantee", ...)
    if found is None:
        raise InputError(
            "guarantee is a Refiner without calibration images, expected one from Refiner.guaranteed or from"
            " Refiner.fit with guarantee="
        )
    if not isinstance(found, Guarantee):
        raise InputTypeError(f"guarantee is a {type(given).__name__}, expected a Refiner or a Guarantee")
    found.source.check(source)
    return found
