"""Given unary features, such as a network's logits, combined with pairwise features of an image."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from locpmap.arrays import frozen, to_numpy
from locpmap.errors import InputError
from locpmap.features.features import CONSTANT, Features
from locpmap.features.images import ImageFeatures

GIVEN = "given"  # value of "unary" in the dictionary, where ImageFeatures has a list


@dataclass(frozen=True)
class GivenUnary:
    """Conversion of pairs (unary, image) to :class:`Features` on a grid or, with ``spacing=``, on a volume.

    Use it if unary features are already available, such as a network's logits.

    Args:
        n_unary (int): Number of unary features, D.  Unaries have shape (H, W, D), or (H, W) if D is 1.
        pairwise (tuple of str, default ("constant",)): Pairwise features, as in :class:`ImageFeatures`.  With
            "constant" alone the image is not used and may be None.
        connectivity (int, default None): As in :class:`ImageFeatures`.
        channels (int, default None): None for images (H, W), C for images (H, W, C).
        spacing (float or tuple of float, default None): As in :class:`ImageFeatures`.  Unaries and images then have an
            axis before H and W.

    Example:
        >>> from locpmap.features import GivenUnary
        >>> logits, image = np.zeros((2, 3, 5)), np.zeros((2, 3), np.uint8)
        >>> GivenUnary(5, ("constant", "contrast"))((logits, image))
        <Features: one input on a grid 2×3, 5 unary and 2 pairwise, float64>

    See Also:
        :class:`ImageFeatures`, :class:`Features`
    """

    n_unary: int
    pairwise: tuple[str, ...] = (CONSTANT,)
    connectivity: int | None = None
    channels: int | None = None
    spacing: float | tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        if type(self.n_unary) is not int or self.n_unary < 0:
            raise InputError(f"n_unary is {self.n_unary!r}, expected a whole number of at least 0")
        checked = self._of_image()
        for name in ("pairwise", "connectivity", "spacing"):
            object.__setattr__(self, name, getattr(checked, name))

    @property
    def needs_image(self) -> bool:
        """Whether a pairwise feature depends on the image."""
        return self.pairwise != (CONSTANT,)

    def __call__(self, value: tuple[Any, Any]) -> Features:
        """Compute the features of one pair (unary, image), O(S · (D + F))."""
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise InputError(f"the input is a {type(value).__name__}, expected a pair (unary, image)")
        unary, image = value
        sites = to_numpy(unary, "unary")
        axes = "H, W" if self.spacing is None else "D, H, W"
        n_axes = 2 if self.spacing is None else 3
        if sites.ndim == n_axes and self.n_unary == 1:
            sites = sites[..., None]
        if sites.ndim != n_axes + 1 or sites.shape[-1] != self.n_unary:
            raise InputError(f"unary has shape {np.shape(unary)}, expected ({axes}, {self.n_unary})")
        how: dict[str, Any] = {"connectivity": self.connectivity}
        spaced = self.spacing is not None
        features = Features.volume(sites, spacing=self.spacing, **how) if spaced else Features.grid(sites, **how)
        if not self.needs_image:
            return features
        seen = self._of_image()(image)
        if seen.batched or seen.structure != features.structure:
            came = f"unary has shape {sites.shape} and its image {np.shape(image)}"
            raise InputError(f"{came}, expected one image of the same size")
        dtype = np.result_type(features.unary, seen.pairwise)
        return replace(
            features,
            unary=frozen(features.unary.astype(dtype, copy=False)),
            pairwise=frozen(seen.pairwise.astype(dtype, copy=False)),
            pairwise_names=seen.pairwise_names,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the options as lists, strings and numbers, for a model file."""
        return {"n_unary": self.n_unary, **self._of_image().to_dict(), "unary": GIVEN}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Create an instance from the output of :meth:`to_dict`.

        >>> from locpmap.features import GivenUnary
        >>> GivenUnary.from_dict(GivenUnary(5).to_dict()) == GivenUnary(5)
        True
        """
        names = {field.name for field in fields(cls)} | {"unary"}
        if set(values) | {"spacing"} != names or values["unary"] != GIVEN:
            raise InputError(f"given features are described by {sorted(map(str, values))}, expected {sorted(names)}")
        return cls(**{name: value for name, value in values.items() if name != "unary"})

    def _of_image(self) -> ImageFeatures:
        return ImageFeatures((), self.pairwise, self.connectivity, self.channels, self.spacing)


def features_from_dict(values: Any) -> ImageFeatures | GivenUnary:
    """Create the feature extractor from the output of its ``to_dict``, as a model file holds it."""
    if isinstance(values, dict) and values.get("unary") == GIVEN:
        return GivenUnary.from_dict(values)
    return ImageFeatures.from_dict(values)
