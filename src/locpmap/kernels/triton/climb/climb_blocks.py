"""Block-wise ascent; see the reference for the definition.

One launch improves a run of blocks that do not touch, in all samples of all images.  ``plan`` holds NumPy arrays: it
determines the launches, so it stays on the host.
"""

import torch
import triton

from locpmap.arrays import of_images
from locpmap.kernels.model import Array, Model
from locpmap.kernels.perturbation import PLAIN
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.block_launches import State, launches
from locpmap.kernels.triton.climb.forest_blocks import improve_forests
from locpmap.kernels.triton.climb.joint_blocks import improve_joint
from locpmap.kernels.triton.local_scores import pairs_of, sizes_of
from locpmap.kernels.triton.perturb import begin, perturb

SAMPLES, SCORES = 32, 512  # limits of the samples of a program, and for forests of samples times labels
SWEEPS_PER_CHECK = 8  # sweeps between two convergence checks: a climb on an image takes 5 to 9 sweeps


def climb_blocks(model: Model, climb: Climb, span: Span, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); return the last sweep that changed anything, (n, R)."""
    assert climb.blocks is not None
    lo, hi, first, n_samples = span
    unary, plan = of_images(model.unary, lo, hi), climb.blocks.plan
    noisy = perturb(unary, model.site_id, climb.perturbation, climb.first_image, span)
    begin(unary, noisy, model.site_id, climb, span, labels)
    placed, runs = launches(model, plan)
    scratch = 1 if all(run.joint for run in runs) else noisy.shape
    small = torch.uint8 if unary.shape[2] <= 256 else torch.int16
    choice = torch.empty(scratch, dtype=small, device=noisy.device)
    message = torch.empty(scratch, dtype=noisy.dtype, device=noisy.device)
    changed = torch.zeros((hi - lo, n_samples), dtype=torch.int32, device=noisy.device)
    stamps = torch.zeros((hi - lo, len(plan.joint), n_samples), dtype=torch.int32, device=noisy.device)

    state = State(labels, changed, stamps, labels.shape[1], n_samples, len(plan.joint), len(runs))
    scheme, amount, *key = climb.perturbation
    scale = torch.full((1,), amount if scheme == PLAIN else 0.0, dtype=noisy.dtype, device=noisy.device)
    sizes, pairs = sizes_of(model), pairs_of(model)
    joint = ((placed, pairs, model.unary, model.site_id, scale, state), *key, climb.first_image + lo, first)
    forests = ((placed, pairs, noisy, choice, message, state),)
    most = min(triton.next_power_of_2(n_samples), SAMPLES)
    for number in range(1, climb.max_sweeps + 1):
        for turn, (is_joint, start, stop) in enumerate(runs, len(runs) * (number - 1) + 1):
            improve, given = (improve_joint, joint) if is_joint else (improve_forests, forests)
            samples = most if is_joint else min(most, max(SCORES // sizes.labels, 1))
            grid = ((hi - lo) * (stop - start) * triton.cdiv(n_samples, samples),)
            improve[grid](*given, number, turn, lo, start, stop - start, sizes, samples, num_warps=1)
        # Sweeps after convergence change nothing, so a late check gives the same result.
        if number % SWEEPS_PER_CHECK == 0 and bool((changed < number).all()):
            break
    return changed
