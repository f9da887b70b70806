"""The classes of ``pydensecrf.densecrf``: a fully connected CRF with Gaussian kernels, decoded by mean field.

The model, its defaults and the filter (a permutohedral lattice) are those of pydensecrf, so results are equal up to
rounding.  Threads use all cores; results do not depend on their number.

This is not Local Perturb-and-MAP, and its kernels are set by hand.  :func:`locpmap.refine` has learned weights and
returns calibrated probabilities; docs/pydensecrf.md compares both.

Differences from pydensecrf: arrays may have any type and memory order, bilateral kernels take images with any number of
channels, and results are NumPy arrays.  Logistic unaries (``setUnary``) are not supported.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.compat.lattice import Lattice
from locpmap.compat.utils import create_pairwise_bilateral, create_pairwise_gaussian, spread_of
from locpmap.errors import InputError, whole_number
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.threads import Threads, available_threads, ranges


class KernelType(IntEnum):
    """Kernel types of pydensecrf; they only affect learning, which pydensecrf does not offer either."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    """Where a filter divides by the sum of its kernel over all pixels: before, after, or by the square root at both."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


LARGEST_FEATURE = 1e5  # single precision does not resolve the lattice at much larger ones
LARGEST_COST = 1e30
CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL = KernelType
NO_NORMALIZATION, NORMALIZE_BEFORE, NORMALIZE_AFTER, NORMALIZE_SYMMETRIC = NormalizationType
# The kernel's sums are raised to these powers and multiplied with the input and with the output of the filter.
POWERS = {
    NO_NORMALIZATION: (0, 0),
    NORMALIZE_BEFORE: (-1, 0),
    NORMALIZE_AFTER: (0, -1),
    NORMALIZE_SYMMETRIC: (-0.5, -0.5),
}


class DenseCRF:
    """CRF in which all pairs of pixels are connected, with Gaussian kernels of features.

    Args:
        nvar (int): Number of pixels.
        nlabels (int): Number of labels.
    """

    def __init__(self, nvar: int, nlabels: int) -> None:
        self._n_pixels = whole_number("nvar", nvar, 1, 2**31)
        self._n_labels = whole_number("nlabels", nlabels, 1, 2**15 - 1)
        self._width = nlabels if nlabels <= 4 else -(-nlabels // 8) * 8  # of rows: loops over 8 labels vectorise
        self._scores: Array | None = None
        self._terms: list[tuple[Lattice, Array]] = []  # with the scores of labels (width,) or of pairs (width, width)
        self._threads = Threads(available_threads())

    def setUnaryEnergy(self, u: Any) -> None:
        """Set the unary energies ``-log p`` of shape (nlabels, n_pixels); pixels of an image are in row-major order."""
        energies = self._rows("u", u, np.inf)
        if not (energies.min(1) < np.inf).all() or (energies == -np.inf).any():
            raise InputError("u holds -infinity, or only infinite energies at a pixel, expected one that is finite")
        self._scores = -energies

    def addPairwiseEnergy(
        self,
        features: Any,
        compat: Any,
        kernel: KernelType = DIAG_KERNEL,
        normalization: NormalizationType = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add the kernel ``exp(-½ |f_i - f_j|²)`` of features f.

        Args:
            features (array): Features of shape (d, n_pixels), such as those of ``create_pairwise_bilateral``.
            compat (float or array): As a number, the score of equal labels.  As an array, costs of equal labels
                (nlabels,) or of label pairs (nlabels, nlabels), of which the symmetric part counts.
            kernel (KernelType): Ignored.
            normalization (NormalizationType): Where to divide by the sum of the kernel.
        """
        given, n = to_numpy(features, "features"), self._n_pixels
        if given.ndim != 2 or given.shape[1] != n or not len(given):
            raise InputError(f"features has shape {given.shape}, expected (d, {n})")
        if not (np.abs(given) <= LARGEST_FEATURE).all():  # also for NaN
            raise InputError(
                f"features holds values outside ±{LARGEST_FEATURE:g} standard deviations, or NaN, expected smaller"
                " ones: subtract the mean, or use larger standard deviations"
            )
        if kernel not in tuple(KernelType):
            raise InputError(f"kernel is {kernel!r}, expected CONST_KERNEL, DIAG_KERNEL or FULL_KERNEL")
        if normalization not in tuple(NormalizationType):
            names = ", ".join(NormalizationType.__members__)
            raise InputError(f"normalization is {normalization!r}, expected one of {names}")
        table = self._table(compat)
        lattice = Lattice(given.astype(np.float32), self._threads)
        total = np.zeros((n, 1), np.float32)
        lattice.add(lattice.sums(np.ones((n, 1), np.float32)), total)
        before, after = POWERS[normalization]
        lattice.scale(total**before, total**after)
        self._terms.append((lattice, table))

    def _table(self, compat: Any) -> Array:
        """Return the scores of labels (width,) or of label pairs (width, width)."""
        costs, n = to_numpy(compat, "compat").astype(np.float32), self._n_labels
        if costs.shape not in ((), (n,), (n, n)) or not (np.abs(costs) <= LARGEST_COST).all():
            raise InputError(f"compat is {compat!r}, expected a number, or costs of shape ({n},) or ({n}, {n})")
        scores = np.full(n, costs) if costs.ndim == 0 else -costs if costs.ndim == 1 else -(costs + costs.T) / 2
        return np.pad(scores, (0, self._width - n))

    def inference(self, niter: int) -> Array:
        """Run mean field from the softmax of the unaries; all pixels are updated at the same time.

        Args:
            niter (int): Number of updates; 0 returns the softmax of the unaries.

        Returns:
            ndarray: Probabilities of shape (nlabels, n_pixels), float32.
        """
        n_updates = whole_number("niter", niter, 0, 10**6)
        beliefs = self._softmax(self._unary())
        for _ in range(n_updates):
            beliefs = self._softmax(self._local_scores(beliefs))
        return beliefs[:, : self._n_labels].T

    def startInference(self) -> tuple[Array, None, None]:
        """Return the probabilities at the start (nlabels, n_pixels) and two placeholders, for :meth:`stepInference`."""
        return self.inference(0), None, None

    def stepInference(self, Q: Array, tmp1: None = None, tmp2: None = None) -> None:
        """Replace probabilities Q (nlabels, n_pixels) by their mean-field update."""
        Q[:] = self._softmax(self._local_scores(self._rows("Q", Q, 0)))[:, : self._n_labels].T

    def klDivergence(self, Q: Any) -> float:
        """Return pydensecrf's divergence of probabilities Q (nlabels, n_pixels) from the model, up to a constant."""
        beliefs, n = self._rows("Q", Q, 0), self._n_labels
        gains = np.log(np.maximum(beliefs, 1e-20)) - self._local_scores(beliefs)
        terms = np.multiply(beliefs, gains, out=np.zeros_like(gains), where=beliefs > 0)  # forbidden labels have none
        return float(terms[:, :n].sum(dtype=np.float64))

    def _unary(self) -> Array:
        if self._scores is None:
            raise InputError("there are no unary energies, expected a call of setUnaryEnergy first")
        return self._scores

    def _rows(self, name: str, values: Any, rest: float) -> Array:
        """Return values (nlabels, n_pixels) as float32 rows of pixels, padded with ``rest``."""
        given, expected = to_numpy(values, name), (self._n_labels, self._n_pixels)
        if given.shape != expected:
            raise InputError(f"{name} has shape {given.shape}, expected {expected}: labels first, then pixels")
        rows = np.full((self._n_pixels, self._width), rest, np.float32)
        rows[:, : self._n_labels] = given.T
        if np.isnan(rows).any():
            raise InputError(f"{name} holds NaN, expected numbers")
        return rows

    def _local_scores(self, beliefs: Array) -> Array:
        """Return the unary scores of each pixel plus the expected scores of its pairs."""
        scores = self._unary().copy()
        for lattice, table in self._terms:
            sums = lattice.sums(beliefs)
            lattice.add(sums * table if table.ndim == 1 else sums @ table, scores)
        return scores

    def _softmax(self, scores: Array) -> Array:
        found, softmax = np.empty_like(scores), kernel_of("numba", "softmax_rows")
        parts = ranges(len(scores), self._threads.n_threads)
        self._threads.map(softmax, [(scores[lo:hi], found[lo:hi]) for lo, hi in parts])
        return found


class DenseCRF2D(DenseCRF):
    """CRF on an image, with Gaussian kernels of position and colour.

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
        self._shape = whole_number("h", h, 1, 2**31), whole_number("w", w, 1, 2**31)
        super().__init__(self._shape[0] * self._shape[1], nlabels)

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
            compat (float or array): As in :meth:`addPairwiseEnergy`.
            kernel (KernelType): Ignored.
            normalization (NormalizationType): Where to divide by the sum of the kernel.
        """
        features = create_pairwise_gaussian(np.flip(spread_of("sxy", sxy, 2)), self._shape)
        self.addPairwiseEnergy(features[::-1], compat, kernel, normalization)

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
            compat (float or array): As in :meth:`addPairwiseEnergy`.
            kernel (KernelType): Ignored.
            normalization (NormalizationType): Where to divide by the sum of the kernel.
        """
        image = to_numpy(rgbim, "rgbim")
        if image.ndim != 3 or image.shape[:2] != self._shape:
            height, width = self._shape
            raise InputError(f"rgbim has shape {image.shape}, expected ({height}, {width}, channels)")
        features = create_pairwise_bilateral(np.flip(spread_of("sxy", sxy, 2)), srgb, image, chdim=2)
        features[:2] = features[1::-1]  # pydensecrf starts with the horizontal position
        self.addPairwiseEnergy(features, compat, kernel, normalization)
