"""The classes of ``pydensecrf.densecrf``, for images.

pydensecrf connects all pairs of pixels.  Here each pixel is connected to a few dozen others, near and far.  Their Potts
weights follow the same kernels and have the same sum (:mod:`locpmap.compat.kernels`).

Differences from pydensecrf:

- A pixel has 8 neighbours for a Gaussian kernel and 48 for a bilateral kernel.  Most labels are equal to those of
  pydensecrf, and probabilities are close; docs/pydensecrf.md has measurements.
- ``inference(n)`` runs n sweeps of mean field that update half of the pixels at a time.  pydensecrf updates all pixels
  simultaneously, which may oscillate.
- Only symmetric normalisation, the default of pydensecrf, is supported.  The others do not define a pairwise model.
- ``DenseCRF(n, K)`` for points without a grid, ``stepInference`` and learning of kernels are not supported.
- :meth:`DenseCRF2D.potentials` returns the model for any decoder of this library, such as LocPMAP.
"""

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
    """Kernel types of pydensecrf; they only affect learning, which is not supported."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    """Normalisations of a kernel's sum over pixels; only NORMALIZE_SYMMETRIC is supported."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL = KernelType
NO_NORMALIZATION, NORMALIZE_BEFORE, NORMALIZE_AFTER, NORMALIZE_SYMMETRIC = NormalizationType


class DenseCRF2D:
    """CRF on an image with Gaussian kernels of position and colour.

    Args:
        w (int): Width of the image.
        h (int): Height of the image.
        nlabels (int): Number of labels.

    Example:
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
        self._terms: list[tuple[Kernel, Array]] = []  # scores: of label pairs (L, L), or of equal labels ()

    def setUnaryEnergy(self, u: Any) -> None:
        """Set the unary energies.

        Args:
            u (array): Energies ``-log p`` of shape (nlabels, w · h), pixels in row-major order.
        """
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
        """Add a Gaussian kernel of position, which favours equal labels of nearby pixels.

        Args:
            sxy (float or pair): Standard deviation in pixels, or (horizontal, vertical).
            compat (float or array): As a number, the score of equal labels, summed over the neighbours of a pixel.
                As an array, costs of equal labels (nlabels,) or of label pairs (nlabels, nlabels).
            kernel (KernelType): Ignored.
            normalization (NormalizationType): Must be ``NORMALIZE_SYMMETRIC``, the default.
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
        """Add a bilateral kernel, which favours equal labels of nearby pixels of similar colour.

        Args:
            sxy (float or pair): Standard deviation in pixels, or (horizontal, vertical).
            srgb (float or sequence): Standard deviation of colours, or one per channel.
            rgbim (array): Image of shape (h, w, channels).
            compat (float or array): As in :meth:`addPairwiseGaussian`.
            kernel (KernelType): Ignored.
            normalization (NormalizationType): Must be ``NORMALIZE_SYMMETRIC``, the default.
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
        """Add a kernel.

        Args:
            features (Kernel): Kernel of ``create_pairwise_gaussian`` or ``create_pairwise_bilateral``.
            compat (float or array): As in :meth:`addPairwiseGaussian`.
            kernel (KernelType): Ignored.
            normalization (NormalizationType): Must be ``NORMALIZE_SYMMETRIC``, the default.
        """
        if not isinstance(features, Kernel):
            raise InputTypeError(
                f"features is a {type(features).__name__}, expected a kernel of create_pairwise_gaussian or"
                " create_pairwise_bilateral of locpmap.compat.utils: feature arrays are not supported"
            )
        if features.shape != self._shape:
            raise InputError(f"features are for an image of shape {features.shape}, expected {self._shape} (h, w)")
        if kernel not in tuple(KernelType):
            raise InputError(f"kernel is {kernel!r}, expected CONST_KERNEL, DIAG_KERNEL or FULL_KERNEL")
        if normalization != NORMALIZE_SYMMETRIC:
            raise InputError(f"normalization is {normalization!r}, expected NORMALIZE_SYMMETRIC, the default")
        self._terms.append((features, self._scores(compat)))

    def _scores(self, compat: Any) -> Array:
        """Return the scores of label pairs (L, L), which are negative costs; or of equal labels () for a number."""
        values = to_numpy(compat, "compat").astype(np.float32)
        n = self._n_labels
        if values.shape not in ((), (n,), (n, n)) or not np.isfinite(values).all():
            raise InputError(f"compat is {compat!r}, expected a number, or costs of shape ({n},) or ({n}, {n})")
        if values.ndim == 2 and not np.array_equal(values, values.T):
            raise InputError("compat is not symmetric, expected the same cost for labels (a, b) and (b, a)")
        return values if values.ndim == 0 else -(np.diag(values) if values.ndim == 1 else values)

    def potentials(self) -> Potentials:
        """Return the model as :class:`locpmap.Potentials`, for :func:`locpmap.infer` with any decoder."""
        if self._energies is None:
            raise InputError("there are no unary energies, expected a call of setUnaryEnergy first")
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
        """Return the sum of the kernels' edge weights of one step, each times its score."""
        total = np.zeros(Grid(*self._shape, (step,)).direction_shapes[0], np.float32)
        for weights, score in terms:
            if step in weights:
                total += score * weights[step]
        return total

    def inference(self, niter: int) -> Array:
        """Run mean field, starting at the softmax of the unaries, and return the probabilities.

        Args:
            niter (int): Number of sweeps; 0 returns the softmax of the unaries.

        Returns:
            ndarray: Probabilities of shape (nlabels, w · h), float32.
        """
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
