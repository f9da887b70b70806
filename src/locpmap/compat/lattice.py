"""Gaussian filter of values at any features, on a permutohedral lattice: all pairs of pixels in linear time."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.threads import Threads, ranges

MOST_PARTS = 8  # of the pixels, each added to its own copy of the lattice; the result depends on their number


class Lattice:
    """The filter ``out_i = Σ_j k(i, j) v_j`` with ``k(i, j) = exp(-½ |f_i - f_j|²)``, approximately.

    Args:
        features (ndarray): Features f of shape (d, N), float32.
        threads (Threads): Threads that run the kernels.
    """

    def __init__(self, features: Array, threads: Threads) -> None:
        n_axes, n_pixels = features.shape
        self.threads = threads
        directions = np.random.default_rng(0).integers(-(2**62), 2**62, n_axes + 1)
        directions[-1:] -= directions.sum(keepdims=True)  # modulo 2^64
        self.points = np.empty((n_pixels, n_axes + 1), np.int32)
        self.before = np.empty(self.points.shape, np.float32)  # weights of pixels as input
        near = kernel_of("numba", "lattice")(np.ascontiguousarray(features.T), directions, self.points, self.before)
        self.after = self.before / np.float32(1 + 0.5**n_axes)  # as output; the factor of pydensecrf
        self._near, self._halves = near.clip(0), np.where(near < 0, 0, 0.5).astype(np.float32)

    def scale(self, before: Array, after: Array) -> None:
        """Multiply the input and the output of the filter by numbers (N, 1) per pixel."""
        self.before, self.after = self.before * before, self.after * after

    def sums(self, values: Array) -> Array:
        """Return the sums at the points of the lattice (M, L) of ``values`` (N, L) float32."""
        n_points = self._near.shape[1]
        parts = ranges(len(values), min(MOST_PARTS, len(values) // n_points))
        copies = np.zeros((len(parts), n_points, values.shape[1]), np.float32)
        jobs = [(self.points, self.before, values, copy, *part) for copy, part in zip(copies, parts, strict=True)]
        self.threads.map(kernel_of("numba", "splat"), jobs)
        found: Array = copies.sum(0)
        for near, halves in zip(self._near, self._halves, strict=True):
            blurred = found.copy()
            self._gather(near, halves, found, blurred)
            found = blurred
        return found

    def add(self, sums: Array, out: Array) -> None:
        """Add the filtered values to ``out`` (N, L)."""
        self._gather(self.points, self.after, sums, out)

    def _gather(self, sources: Array, weights: Array, values: Array, out: Array) -> None:
        parts = ranges(len(out), self.threads.n_threads)
        self.threads.map(kernel_of("numba", "gather"), [(sources, weights, values, out, *part) for part in parts])
