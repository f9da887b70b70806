"""Numba version of `reference.perturb_and_max_product`.  Memory per call: one sample's messages, 2E·L values."""

import numpy as np

from locpmap.kernels.model import UNVISITED
from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.decode_messages import decode
from locpmap.kernels.numba.pass_messages import visit
from locpmap.kernels.numba.perturbing import perturb_unaries


@kernel
def perturb_and_max_product(model, perturbation, orders, limits, first_image, lo, hi, first_sample, labels):
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a message, (hi - lo, R)."""
    (order, decode_order), (damping, undamped, tolerance, max_sweeps) = orders, limits
    n_sites, n_labels = model.unary.shape[1], model.unary.shape[2]
    n_samples = labels.shape[2]
    sweeps = np.zeros((hi - lo, n_samples), np.int32)
    rho = np.ones(len(model.edges))
    unary = np.empty((n_sites, n_labels), model.unary.dtype)
    messages = np.empty((2 * len(model.edges), n_labels))
    dirty = np.empty(n_sites, np.uint8)
    y = np.empty(n_sites, np.int64)
    for n in range(lo, hi):
        for s in range(n_samples):
            perturb_unaries(unary, model.unary, n, perturbation, first_image + n, first_sample + s, model.site_id)
            messages[:] = 0.0
            dirty[:] = UNVISITED
            for sweep in range(1, max_sweeps + 1):
                now = damping if sweep > undamped else 0.0
                if visit(model, n, unary, order, messages, dirty, rho, True, now, tolerance) == 0:
                    break
                sweeps[n - lo, s] = sweep
            decode(model, n, unary, decode_order, messages, y)
            for i in range(n_sites):
                labels[n - lo, i, s] = y[i]
    return sweeps
