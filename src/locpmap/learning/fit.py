"""The two optimisers: L-BFGS over all data, and mini-batch descent, which consistent learning uses."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.learning.batches import Batch, draw, thinned_to
from locpmap.learning.checkpoint import Checkpoint
from locpmap.learning.dataset import Dataset
from locpmap.learning.godambe import standard_errors
from locpmap.learning.objectives import Objective
from locpmap.learning.optimisers import STEPS_PER_CHECK, Descent, descend, minimise
from locpmap.learning.result import FitResult, FitStatus

Progress = Callable[[int, int, float], None]  # iteration, maximum number of iterations, value

# Arguments: batch, weights w (P,), number of samples M, seed, number of the batch's first image in the full batch.
# Returns sampled labels (N, S, M). The seed and the image number determine the noise.
Sampler = Callable[[Batch, Array, int, int, int], Array]
SITES_PER_STEP = 50_000  # sites of a mini-batch if batch_size is None
HELD_OUT_SITES = 100_000  # approximate size of the held-out subset that is evaluated
SAMPLES, HELD_OUT_SAMPLES = 4, 8
HELD_OUT_SEED, SEEDS = 1 << 30, 1 << 64
WARM_UP_SITES, WARM_UP_TOLERANCE = 400_000, 1e-4


@dataclass
class Control:
    """Limits, seed, progress callback and checkpoint of a fit."""

    max_iterations: int
    tolerance: float
    seed: int
    progress: Progress | None
    checkpoint: Checkpoint
    batch_size: int | None = None

    def images_per_step(self, batch: Batch) -> int:
        """Return the number of inputs of a mini-batch of one shape."""
        return self.batch_size or max(1, SITES_PER_STEP // batch.labels.shape[1])


def fitted_result(name: str, objective: Objective, data: Dataset, w: Array, began: float, **details: Any) -> FitResult:
    """Return the result of a fit that began at a time of `time.perf_counter`, with the ``details`` of its optimiser."""
    counts: dict[str, Any] = {"n_sites": data.n_sites, "n_images": data.n_images}
    seconds, names = time.perf_counter() - began, objective.parameters.names
    return FitResult(objective=name, w=w, names=names, seconds=seconds, **counts, **details)


def fit_lbfgs(
    name: str, objective: Objective, data: Dataset, start: Array, control: Control, *, with_errors: bool = False
) -> FitResult:
    """Fit by L-BFGS-B, with one pass over all data per evaluation."""
    began = time.perf_counter()
    saved = control.checkpoint.load()
    lowest = objective.parameters.lowest
    curve: list[float] = []
    if saved is not None:
        start, curve = saved["w"], saved["curve"].tolist()
    elif (every := data.thinning(_warm_up_sites(objective, data))) > 1:
        # Start from the optimum of a subset: most iterations only approach the optimum and need few data.
        some, eased = data.thinned(every), replace(objective, l2=objective.l2 / every)
        loose = (control.max_iterations, max(WARM_UP_TOLERANCE, control.tolerance), lambda point, value: None)
        start = minimise(partial(eased.mean, some), start, data.scales, lowest, *loose)[0]

    def value_and_gradient(point: Array) -> tuple[float, Array]:
        value, gradient = objective.mean(data, point)
        if not curve:
            curve.append(value)
        return value, gradient

    def after(point: Array, value: float) -> None:
        curve.append(value)
        control.checkpoint.offer({"w": point, "curve": np.array(curve)})
        if control.progress is not None:
            control.progress(len(curve) - 1, control.max_iterations, value)

    left = control.max_iterations - max(len(curve) - 1, 0)
    how = (max(left, 1), control.tolerance, after)
    w, value, norm, status = minimise(value_and_gradient, start, data.scales, lowest, *how)
    w = objective.parameters.fold(*objective.parameters.expand(w))
    found = {"status": status, "value": value, "curve": np.array(curve), "gradient_norm": norm}
    result = fitted_result(name, objective, data, w, began, **found, n_iterations=len(curve) - 1)
    return replace(result, standard_errors=standard_errors(objective, data, w)) if with_errors else result


def _warm_up_sites(objective: Objective, data: Dataset) -> int:
    """Return the number of sites of the warm-up: half as many for blocks, which cost more, and all sites on a GPU."""
    if objective.kernels.device is not None:
        return data.n_sites
    return WARM_UP_SITES if objective.blocks is None else WARM_UP_SITES // 2


def fit_stochastic(
    name: str,
    objective: Objective,
    data: Dataset,
    held_out: Sequence[Batch],
    start: Array,
    control: Control,
    sampler: Sampler | None = None,
    other_start: Array | None = None,
) -> FitResult:
    """Fit by mini-batch descent with early stopping on held-out data.

    With a sampler the objective is the consistent one, ``-Σ_i log mean_m p(y_i | y^m_¬i)``. Its samples y^1 .. y^M
    replace the true labels of the neighbours and are drawn anew in every step under the current weights. With LocPMAP
    as the sampler, this is the negative log-likelihood of the probabilities that LocPMAP reports.

    If ``other_start`` has a lower held-out loss than the result of the descent, a second descent starts there.
    """
    began = time.perf_counter()
    parameters, scales, processes = objective.parameters, data.scales, data.processes
    held_out = thinned_to(held_out, HELD_OUT_SITES)
    weight = sum(batch.weight() for batch in held_out)

    def sums(batch: Batch, w: Array, n_samples: int, seed: int, turn: int = 0) -> Array:
        """Return the objective and its gradient on the images of a batch that this process handles, (1 + P,)."""
        own = processes.part(batch.n_images, turn)
        if own.start == own.stop:
            return np.zeros(1 + len(w))
        part = batch if processes.size == 1 else batch.part(own)
        samples = None if sampler is None else sampler(part, w, n_samples, seed % SEEDS, own.start)
        return np.append(*objective(part, w, samples))

    def gradient(point: Array, step: int) -> tuple[float, Array]:
        w = point / scales
        batch = draw(data.batches, control.images_per_step, control.seed, step)
        value, *by_w = processes.total(sums(batch, w, SAMPLES, control.seed + step))
        # Divide by the expected weight of a batch, not by its own: then the gradient is unbiased.
        here = data.weight * batch.n_images / data.n_images
        return float(value) / here, (np.array(by_w) / here + objective.penalty(w, data.weight)[1]) / scales

    def held_out_loss(point: Array) -> float:
        w = point / scales
        total = np.zeros(1 + len(w))
        for turn, batch in enumerate(held_out):
            # The same noise at every check makes the values comparable.
            total += sums(batch, w, HELD_OUT_SAMPLES, HELD_OUT_SEED + control.seed, turn)
        return float(processes.total(total)[0]) / weight

    def after_check(descent: Descent) -> None:
        control.checkpoint.offer(descent.state())
        if control.progress is not None:
            last = min(descent.step + descent.n_left, descent.first_step + max_steps)
            control.progress(descent.step, last, descent.held_out[-1])

    max_steps = STEPS_PER_CHECK * control.max_iterations
    saved = control.checkpoint.load()
    descent = Descent.start(start * scales, held_out_loss(start * scales)) if saved is None else Descent.resume(saved)
    descend(descent, gradient, held_out_loss, parameters.lowest, max_steps, after_check)
    if other_start is not None:
        other = held_out_loss(other_start * scales)
        if other < min(descent.held_out):
            descent.restart(other_start * scales, other)
            descend(descent, gradient, held_out_loss, parameters.lowest, max_steps, after_check)
    w = parameters.fold(*parameters.expand(descent.best / scales))
    if min(descent.held_out) >= descent.held_out[0]:
        status = FitStatus.NO_GAIN
    else:
        status = FitStatus.HELD_OUT if descent.finished else FitStatus.MAX_ITERATIONS
    last = np.mean(descent.curve[-STEPS_PER_CHECK:]) if descent.curve else descent.held_out[0]
    return fitted_result(
        name,
        objective,
        data,
        w,
        began,
        status=status,
        value=float(last) + objective.penalty(w, data.weight)[0],
        curve=np.array(descent.curve),
        gradient_norm=float(np.abs(descent.momentum).max()),
        n_iterations=descent.step,
        held_out=np.array(descent.held_out),
    )
