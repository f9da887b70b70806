"""Numba version of `reference.votes`: the number of samples with each label, per site."""

from locpmap.kernels.numba.compiling import kernel


@kernel
def votes(labels, totals, first, begin, stop):
    """Add one to the total of ``labels[n, i, s]`` at sites begin..stop; totals (n, T, L) of sites from ``first`` on."""
    n_samples = labels.shape[2]
    for n in range(labels.shape[0]):
        for i in range(begin, stop):
            # Most samples agree: count those equal to the first, which vectorises, then the others one by one.
            usual = labels[n, i, 0]
            same = 0
            for s in range(n_samples):
                same += labels[n, i, s] == usual
            totals[n, i - first, usual] += same
            if same < n_samples:
                for s in range(n_samples):
                    if labels[n, i, s] != usual:
                        totals[n, i - first, labels[n, i, s]] += 1
