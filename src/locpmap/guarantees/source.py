"""What samples were drawn from, by which a guarantee recognises inputs of the same kind."""

from typing import NamedTuple, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError

SAME_STRIDE = 1.2  # largest ratio between strides that count as equal


class Source(NamedTuple):
    """The refiner, and the kind of its input."""

    refiner: str  # checksum
    n_labels: int  # 0 if it is not known, as in guarantees of earlier versions
    stride: float = 0.0  # pixels per score; 0 if the rest is not known
    has_image: bool = False
    least: tuple[float, ...] = ()  # smallest sides of a voxel; none for images
    most: tuple[float, ...] = ()  # largest ones

    def check(self, other: Self | None) -> None:
        """Raise if samples of the other source are not like those of this one, with which a guarantee was made."""
        if other is None or self.refiner != other.refiner:
            raise InputError(
                "the guarantee is one of another model, expected the calibrated refiner's own refine or measure, with"
                " its default decoder"
            )
        if self.n_labels not in (0, other.n_labels):
            raise InputError(f"the result has {other.n_labels} labels, expected {self.n_labels} like the guarantee")
        if self.stride == 0:
            return
        if not 1 / SAME_STRIDE <= other.stride / self.stride <= SAME_STRIDE:
            raise InputError(
                f"the logits have stride {other.stride:.3g}, and the guarantee holds for {self.stride:.3g}"
            )
        if self.has_image != other.has_image:
            states = ["no image", "an image"] if self.has_image else ["an image", "no image"]
            raise InputError(f"the input has {states[0]}, and the guarantee holds for inputs with {states[1]}")
        if len(self.least) != len(other.least):
            kinds = ("an image", "volumes") if self.least else ("a volume", "images")
            raise InputError(f"the input is {kinds[0]}, and the guarantee holds for {kinds[1]}")
        sides = zip(self.least, other.least, self.most, strict=True)
        if not all(least / SAME_STRIDE <= side <= most * SAME_STRIDE for least, side, most in sides):
            pairs = zip(self.least, self.most, strict=True)
            known = ", ".join(f"{low:.3g} to {high:.3g}" if high > low else f"{low:.3g}" for low, high in pairs)
            came = ", ".join(f"{side:.3g}" for side in other.least)
            raise InputError(f"the spacing is {came}, and the guarantee holds for {known}")

    def array(self) -> Array:
        """Return all but the refiner as an array, for a file."""
        return np.array([self.n_labels, self.stride, self.has_image, *self.least, *self.most], np.float64)

    @classmethod
    def of_array(cls, refiner: str, array: Array) -> Self:
        """Return the source with this refiner and array; raise if the array is malformed."""
        if array.shape not in ((3,), (9,)):
            raise InputError("its guarantee has arrays of wrong shapes")
        n_labels, stride, has_image, *sides = array.tolist()
        half = len(sides) // 2
        return cls(refiner, int(n_labels), stride, bool(has_image), tuple(sides[:half]), tuple(sides[half:]))
