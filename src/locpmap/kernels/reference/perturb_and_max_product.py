"""Samples by max-product on perturbed unaries: pass messages until convergence, then decode a labelling."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import UNVISITED, Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.reference.climb_sites import perturbed
from locpmap.kernels.reference.decode_messages import decode
from locpmap.kernels.reference.pass_messages import visit

Orders = tuple[Array, Array]  # in which sites send, and in which they are decoded
Limits = tuple[float, int, float, int]  # damping, number of sweeps without damping, tolerance, maximum number of sweeps


def perturb_and_max_product(
    model: Model,
    perturbation: Perturbation,
    orders: Orders,
    limits: Limits,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: Array,
) -> Array:
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a message, (hi - lo, R)."""
    (order, decode_order), (damping, undamped, tolerance, max_sweeps) = orders, limits
    sweeps = np.zeros((hi - lo, labels.shape[2]), np.int32)
    rho = np.ones(len(model.edges))
    y = np.empty(model.unary.shape[1], np.int64)
    for n in range(lo, hi):
        for s in range(labels.shape[2]):
            unary = perturbed(model.unary[n], perturbation, first_image + n, first_sample + s, model.site_id)
            messages = np.zeros((2 * len(model.edges), model.unary.shape[2]))
            dirty = np.full(len(y), UNVISITED, np.uint8)
            for sweep in range(1, max_sweeps + 1):
                now = damping if sweep > undamped else 0.0
                if visit(model, n, unary, order, messages, dirty, rho, True, now, tolerance) == 0:
                    break
                sweeps[n - lo, s] = sweep
            decode(model, n, unary, decode_order, messages, y)
            labels[n - lo, :, s] = y
    return sweeps
