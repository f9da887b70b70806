"""Block-wise ascent; see the reference for the definition.

One launch improves a run of blocks that do not touch, in all samples of all images.  ``plan`` holds NumPy arrays: it
determines the launches, so it stays on the host.
"""

import torch

from locpmap.arrays import of_images
from locpmap.kernels.model import Array, Model
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.block_launches import State, launches
from locpmap.kernels.triton.climb.forest_blocks import improve_forests
from locpmap.kernels.triton.climb.joint_blocks import improve_joint
from locpmap.kernels.triton.perturb import begin, perturb

SWEEPS_PER_CHECK = 8  # sweeps between two convergence checks: a climb on an image takes 5 to 9 sweeps


def climb_blocks(model: Model, climb: Climb, span: Span, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); return the last sweep that changed anything, (n, R)."""
    assert climb.blocks is not None
    lo, hi, _, n_samples = span
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
    for number in range(1, climb.max_sweeps + 1):
        for turn, run in enumerate(runs, len(runs) * (number - 1) + 1):
            if run.joint:
                improve_joint(model, placed, run, climb, span, state, number, turn)
            else:
                improve_forests(model, placed, run, (noisy, choice, message), lo, state, number, turn)
        # Sweeps after convergence change nothing, so a late check gives the same result.
        if number % SWEEPS_PER_CHECK == 0 and bool((changed < number).all()):
            break
    return changed
