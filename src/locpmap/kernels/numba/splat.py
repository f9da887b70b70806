"""Numba version of `reference.splat`."""

from locpmap.kernels.numba.compiling import kernel


@kernel
def splat(points, weights, values, out, begin, stop):
    """Add weighted rows of ``values`` (N, L) to rows of ``out`` (M, L); the loop over L vectorises."""
    for p in range(begin, stop):
        row = values[p]
        for k in range(points.shape[1]):
            weight, total = weights[p, k], out[points[p, k]]
            for c in range(len(row)):
                total[c] += weight * row[c]
