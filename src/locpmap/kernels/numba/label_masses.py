"""Numba version of `reference.label_masses`."""

from locpmap.kernels.numba.compiling import kernel


@kernel
def label_masses(probability, masses):
    """Fill masses (L, B); reads S · L numbers once."""
    masses[:] = 0
    n_sites, n_labels = probability.shape
    n_bins = masses.shape[1]
    for i in range(n_sites):
        for k in range(n_labels):
            value = probability[i, k]
            masses[k, max(0, min(int(value * n_bins), n_bins - 1))] += value  # also for NaN, within bounds
