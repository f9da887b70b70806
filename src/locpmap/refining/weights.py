"""The learned weights of a refiner, and manual adjustments."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, namespace, place_like
from locpmap.errors import InputError, within
from locpmap.refining.adapting import Rule

STEPS = ((0, 1), (1, 0))
VOLUME_STEPS = ((0, 0, 1), (0, 1, 0), (1, 0, 0))
FEATURES = ("constant", "similarity")
LARGEST = 1e6  # largest adjustment, so that scores stay finite in single precision
MOST = np.finfo(np.float64).max  # of weights that have no bound
OF_LABELS = ("offsets", "factors")
CELL, N_SCALES = 4, 5  # of the error fields: cells of 4, 8, 16, 32 and 64 pixels


by_stride = lru_cache(maxsize=8)  # the images of a pipeline share a stride, and interpolation takes as long as launches


@dataclass(frozen=True)
class Adjustment:
    """Manual changes of a refiner's model; see :meth:`locpmap.Refiner.adjusted`."""

    strength: float = 1.0
    smoothing: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        within("strength", self.strength, 0, LARGEST)
        within("smoothing", self.smoothing, 0, LARGEST)
        within("temperature", self.temperature, 1 / LARGEST, LARGEST)
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, float(getattr(self, name)))


class Errors(NamedTuple):
    """Parameters of samples: error fields, Gumbel noise and presence, in units of the scaled scores."""

    sizes: tuple[float, ...]  # standard deviations by scale
    shared: float
    noise: float
    half: float  # of `presence_of`
    steepness: float
    votes: Any  # weight of the fractions of samples in the probability, of all images or of each (N,)


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights for R strides; between strides, weights are interpolated.

    With the defaults, the model only scales the scores. All values are finite, and all but offsets at least 0.

    Attributes:
        strides: (R,) increasing strides: image pixels per score of the network, along an axis.
        scales: (R,) factors of the network's scores, fitted without the other terms (temperature scaling).
        own: (R,) factors of the scaled scores in the full model.
        guided: (R,) factors of the guided log mean.
        pairwise: (R, 2, 2) Potts weights, per step: a constant, and a factor of the colour similarity.
        typical: (2,) mean colour similarity per step, used if there is no image.
        shared: (R,) standard deviations of the error shared by all pixels of an image.
        presence: (R, 2) half and steepness of `presence_of`. If half is 0, all labels are assumed to be present.
        sizes: (R, 5) standard deviations of the error fields, in cells of 4, 8, 16, 32 and 64 pixels.
        noise: (R,) scales of the Gumbel noise of samples.
        votes: (R,) weights, up to 1, of the fractions of samples in the probability; the rest is that of the softmax.
        adaptation: (R, 2) ``threshold``, below 1, and ``removed`` of `Rule`. With a threshold of 0 (files of earlier
            versions, fits without images), weights do not adapt to an image.
        offsets: (R, K) offsets added to the scaled scores of K labels, of any sign; (R, 0) for weights without
            offsets, which accept any number of labels.
        factors: (R, K) factors of the scaled scores of K labels. The best score of each pixel is subtracted before
            they are applied. By default 1 for each offset.
    """

    strides: Any
    scales: Any
    own: Any = 1.0
    guided: Any = 0.0
    pairwise: Any = 0.0
    typical: Any = 0.0
    shared: Any = 0.0
    presence: Any = 0.0
    sizes: Any = 0.0
    noise: Any = 1.0
    votes: Any = 0.5
    adaptation: Any = 0.0
    offsets: Any = None
    factors: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(self.strides))
        shape_of = {"pairwise": (n, len(STEPS), len(FEATURES)), "typical": (len(STEPS),)}
        shape_of |= {"presence": (n, 2), "sizes": (n, N_SCALES), "adaptation": (n, 2)}
        of_labels = (n, 0) if self.offsets is None else (n, np.shape(self.offsets)[-1] if np.ndim(self.offsets) else 1)
        shape_of |= {"offsets": of_labels, "factors": of_labels}
        for name in self.__dataclass_fields__:
            given, shape = getattr(self, name), shape_of.get(name, (n,))
            missing = given is None or (name == "factors" and np.size(given) == 0)
            given = np.ones(shape) if missing else given
            fills = np.ndim(given) == 0 and name not in OF_LABELS
            array = np.full(shape, float(given)) if fills else np.array(given, np.float64)
            if n == 0 or array.shape != shape:
                raise InputError(f"{name} has shape {array.shape}, expected {shape}")
            least, most = {"offsets": (-LARGEST, LARGEST), "factors": (1 / LARGEST, LARGEST)}.get(name, (0, MOST))
            if not ((array >= least) & (array <= most)).all():
                raise InputError(f"{name} is {array.tolist()}, expected numbers from {least:g} to {most:g}")
            array.flags.writeable = False  # several refiners may share the array
            object.__setattr__(self, name, array)
        if (self.votes > 1).any():
            raise InputError(f"votes is {self.votes.tolist()}, expected numbers of at most 1")
        if (self.adaptation >= 1).any():
            raise InputError(f"adaptation is {self.adaptation.tolist()}, expected numbers below 1")
        if (self.strides < 1).any() or (np.diff(self.strides) <= 0).any():
            raise InputError(f"strides is {self.strides.tolist()}, expected increasing numbers of at least 1")

    @by_stride
    def at(self, stride: float) -> tuple[float, float, float, Array]:
        """Return scale, own, guided and pairwise (2, 2) at a stride.

        The interpolation is linear in the logarithm of the stride, and constant outside the range of strides.
        """
        columns = np.column_stack([self.scales, self.own, self.guided, self.pairwise.reshape(len(self.strides), -1)])
        scale, own, guided, *pairwise = self._interpolated(columns, stride).tolist()
        return scale, own, guided, np.reshape(pairwise, self.pairwise.shape[1:])

    def scaled(self, scores: Any, stride: float) -> Any:
        """Multiply scores (.., K) by the scale and the factors at a stride and add the offsets; -inf stays -inf."""
        found, n_labels = scores * np.float32(self.at(stride)[0]), self.offsets.shape[1]
        if n_labels == 0:
            return found
        if scores.shape[-1] != n_labels:
            raise InputError(f"logits has {scores.shape[-1]} labels, expected {n_labels} like those of the fit")
        factors, offsets = (
            place_like(scores, self._interpolated(values, stride).astype(np.float32))
            for values in (self.factors, self.offsets)
        )
        xp = namespace(found)
        best = xp.amax(found, -1)[..., None]
        found -= xp.where(best == -np.inf, 0 * offsets[0], best)  # all scores of a masked pixel may be -inf
        found *= factors
        found += offsets
        return found

    @by_stride
    def errors_at(self, stride: float) -> Errors:
        """Return the parameters of samples at a stride, interpolated like those of `at`."""
        columns = np.column_stack([self.sizes, self.shared, self.noise, self.presence, self.votes])
        values = self._interpolated(columns, stride).tolist()
        return Errors(tuple(values[:N_SCALES]), *values[N_SCALES:])

    @by_stride
    def rule_at(self, stride: float) -> Rule:
        """Return the rule of adaptation at a stride, interpolated like the weights of `at`."""
        return Rule(*self._interpolated(self.adaptation, stride).tolist())

    def _interpolated(self, columns: Array, stride: float) -> Array:
        """Interpolate columns (R, C) between strides, and return their row (C,) at one stride."""
        return np.array([np.interp(np.log(stride), np.log(self.strides), column) for column in columns.T])

    def identity(self, adjustment: Adjustment) -> str:
        """Return a checksum of the weights and an adjustment, by which a guarantee recognises its model."""
        total = hashlib.sha256(repr(adjustment).encode())
        for name in self.__dataclass_fields__:
            total.update(getattr(self, name).tobytes())
        return total.hexdigest()[:16]
