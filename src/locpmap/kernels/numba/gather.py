"""Numba version of `reference.gather`."""

from locpmap.kernels.numba.compiling import kernel


@kernel
def gather(sources, weights, values, out, begin, stop):
    """Add weighted rows of ``values`` (M, L) to rows of ``out`` (N, L); the loop over L vectorises."""
    for p in range(begin, stop):
        total = out[p]
        for k in range(sources.shape[1]):
            weight, row = weights[p, k], values[sources[p, k]]
            if weight == 0:  # no neighbour
                continue
            for c in range(len(total)):
                total[c] += weight * row[c]
