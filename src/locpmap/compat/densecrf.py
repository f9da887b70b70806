"""The classes of ``pydensecrf.densecrf``, on a grid.

What was fully connected becomes a grid model in which each pixel keeps a few dozen neighbours, near and far, whose
Potts weights follow the same kernels and have the same sum (:mod:`locpmap.compat.kernels`).  Where it differs:

- A message is a sum over eight neighbours for a kernel of places, and 48 for one of colours, not over all pixels: most
  labels are those of pydensecrf, probabilities are close and not equal.  docs/pydensecrf.md has both, measured.
- ``inference(n)`` makes n sweeps of mean field that update half of the pixels at a time, from the newest values of the
  others; pydensecrf updates all at once, which may oscillate.
- Normalisation is symmetric, pydensecrf's default; the others are no model that sums over pairs, and are refused.
- ``DenseCRF(n, K)`` for points without a grid, ``stepInference`` and learning of kernels do not exist here.
- :meth:`DenseCRF2D.potentials` hands the model over to every decoder of this library: LocPMAP draws whole label maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.compat.kernels import Kernel, Step
from locpmap.compat.utils import create_pairwise_bilateral, spread_of
from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.graphs import Grid
from locpmap.inference import infer
from locpmap.pairwise import Factored
from locpmap.potentials import Potentials


class KernelType(IntEnum):
    """Of no consequence but for learning, which is not here."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    """How a kernel's sum over pixels is made 1."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL = KernelType
NO_NORMALIZATION, NORMALIZE_BEFORE, NORMALIZE_AFTER, NORMALIZE_SYMMETRIC = NormalizationType


class DenseCRF2D:
    """A CRF on an image whose pairwise terms follow Gaussian kernels of places and colours.

    Args:
        w: Width; note the order.
        h: Height.
        nlabels: How many labels.

    >>> energies = np.zeros((2, 12), np.float32)  # (labels, pixels)
    >>> energies[1] = [1, 1, 1, -1] * 3
    >>> crf = DenseCRF2D(4, 3, 2)
    >>> crf.setUnaryEnergy(energies)
    >>> crf.addPairwiseGaussian(sxy=1, compat=1)
    >>> Q = crf.inference(5)
    >>> np.argmax(Q, axis=0).reshape(3, 4)
    array([[0, 0, 0, 1],
           [0, 0, 0, 1],
           [0, 0, 0, 1]])
    """

    def __init__(self, w: int, h: int, nlabels: int) -> None:
        width, height = whole_number("w", w, 1, 2**31), whole_number("h", h, 1, 2**31)
        self._shape, self._n_labels = (height, width), whole_number("nlabels", nlabels, 1, 2**15 - 1)
        self._energies: Array | None = None
        self._terms: list[tuple[Kernel, Array]] = []  # with scores of pairs of labels, (L, L), or of agreement, ()

    def setUnaryEnergy(self, u: Any) -> None:
        """Energies (nlabels, w · h), rows of the image one after the other: ``-log`` of what is likely."""
        energies, expected = to_numpy(u, "u"), (self._n_labels, self._shape[0] * self._shape[1])
        if energies.shape != expected:
            raise InputError(f"u has shape {energies.shape}, expected {expected}: labels first, then pixels")
        self._energies = energies.astype(np.float32)

    def addPairwiseGaussian(
        self,
        sxy: float | Sequence[float],
        compat: Any,
        kernel: KernelType = DIAG_KERNEL,
        normalization: NormalizationType = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Let pixels nearby agree.

        Args:
            sxy: The spread in pixels: a number, or (horizontal, vertical).
            compat: The score of agreement, of a pixel with all others together; or costs of labels that agree,
                (nlabels,), or of pairs of labels, (nlabels, nlabels).
            kernel: Without effect.
            normalization: ``NORMALIZE_SYMMETRIC``.
        """
        self.addPairwiseEnergy(Kernel(_rows_first(sxy), self._shape), compat, kernel, normalization)

    def addPairwiseBilateral(
        self,
        sxy: float | Sequence[float],
        srgb: float | Sequence[float],
        rgbim: Any,
        compat: Any,
        kernel: KernelType = DIAG_KERNEL,
        normalization: NormalizationType = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Let pixels of like colours agree.

        Args:
            sxy: The spread in pixels: a number, or (horizontal, vertical).
            srgb: The spread of colours: a number, or one for each channel.
            rgbim: The image (h, w, channels).
            compat: As in :meth:`addPairwiseGaussian`.
            kernel: Without effect.
            normalization: ``NORMALIZE_SYMMETRIC``.
        """
        image = to_numpy(rgbim, "rgbim")
        if image.ndim != 3 or image.shape[:2] != self._shape:
            height, width = self._shape
            raise InputError(f"rgbim has shape {image.shape}, expected ({height}, {width}, channels)")
        features = create_pairwise_bilateral(_rows_first(sxy), srgb, image, chdim=2)
        self.addPairwiseEnergy(features, compat, kernel, normalization)

    def addPairwiseEnergy(
        self,
        features: Kernel,
        compat: Any,
        kernel: KernelType = DIAG_KERNEL,
        normalization: NormalizationType = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add the kernel that ``create_pairwise_gaussian`` or ``create_pairwise_bilateral`` made."""
        if not isinstance(features, Kernel):
            raise InputTypeError(
                f"features is a {type(features).__name__}, expected what create_pairwise_gaussian or"
                " create_pairwise_bilateral of locpmap.compat.utils returns: features of one's own have no grid"
            )
        if features.shape != self._shape:
            raise InputError(f"features are of an image {features.shape}, expected {self._shape} (h, w)")
        if kernel not in tuple(KernelType):
            raise InputError(f"kernel is {kernel!r}, expected CONST_KERNEL, DIAG_KERNEL or FULL_KERNEL")
        if normalization != NORMALIZE_SYMMETRIC:
            raise InputError(f"normalization is {normalization!r}, expected NORMALIZE_SYMMETRIC, the default")
        self._terms.append((features, self._scores(compat)))

    def _scores(self, compat: Any) -> Array:
        """Scores of pairs of labels, (L, L), or of agreement, (): costs with the sign changed, but for one number."""
        values = to_numpy(compat, "compat").astype(np.float32)
        n = self._n_labels
        if values.shape not in ((), (n,), (n, n)) or not np.isfinite(values).all():
            raise InputError(f"compat is {compat!r}, expected a number, or costs of shape ({n},) or ({n}, {n})")
        if values.ndim == 2 and not np.array_equal(values, values.T):
            raise InputError("compat is not symmetric, expected the same cost for a pair of labels either way round")
        return values if values.ndim == 0 else -(np.diag(values) if values.ndim == 1 else values)

    def potentials(self) -> Potentials:
        """The grid model, for :func:`locpmap.infer` with any decoder."""
        if self._energies is None:
            raise InputError("there are no unary energies, expected a call of setUnaryEnergy before")
        unary = -self._energies.T.reshape(*self._shape, self._n_labels)
        found = [(kernel.weights(), scores) for kernel, scores in self._terms]
        steps = tuple(dict.fromkeys(step for weights, _ in found for step in weights))
        if not steps:
            return Potentials.grid(unary, 0.0)
        if all(scores.ndim == 0 for _, scores in found):
            potts = tuple(self._sum([(weights, float(scores)) for weights, scores in found], step) for step in steps)
            return Potentials.grid(unary, potts, connectivity=steps)
        tables = np.stack([scores if scores.ndim else scores * np.eye(self._n_labels) for _, scores in found])
        each = tuple(np.stack([self._sum([(weights, 1.0)], step) for weights, _ in found], -1) for step in steps)
        return Potentials.grid(unary, Factored(each, tables.astype(np.float32)), connectivity=steps)

    def _sum(self, terms: list[tuple[dict[Step, Array], float]], step: Step) -> Array:
        """The kernels' weights of the edges of a step, times their scores."""
        total = np.zeros(Grid(*self._shape, (step,)).direction_shapes[0], np.float32)
        for weights, score in terms:
            if step in weights:
                total += score * weights[step]
        return total

    def inference(self, niter: int) -> Array:
        """Probabilities (nlabels, w · h) float32 after so many sweeps of mean field that starts at the unaries."""
        sweeps, potentials = whole_number("niter", niter, 0, 10**6), self.potentials()
        if sweeps:
            result = infer(potentials, "mean_field", max_sweeps=sweeps, start="unary")
            probability = result.probability
        else:
            shifted = potentials.unary[0] - potentials.unary[0].max(-1, keepdims=True)
            probability = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
        return np.ascontiguousarray(probability.reshape(-1, self._n_labels).T)


def _rows_first(sxy: float | Sequence[float]) -> tuple[float, float]:
    horizontal, vertical = spread_of("sxy", sxy)
    return vertical, horizontal
