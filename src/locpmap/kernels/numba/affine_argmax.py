"""Numba version of `reference.affine_argmax`."""

from locpmap.kernels.numba.compiling import kernel


@kernel
def affine_argmax(probability, slope, offset, labels, counts, inside):
    """Fill labels (S,) and their sums (L,); reads S · L numbers and writes S."""
    counts[:] = 0
    inside[:] = 0
    n_sites, n_labels = probability.shape
    for i in range(n_sites):
        best, top = 0, slope[0] * probability[i, 0] + offset[0]
        for k in range(1, n_labels):
            value = slope[k] * probability[i, k] + offset[k]
            if value > top:
                best, top = k, value
        labels[i] = best
        counts[best] += 1
        inside[best] += probability[i, best]
