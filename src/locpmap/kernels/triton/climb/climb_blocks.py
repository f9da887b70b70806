"""Block-wise ascent; see the reference for the definition.

Blocks that do not touch are improved in one launch, all samples of all images at once.  ``plan`` holds NumPy arrays:
like a model's ``class_ptr``, it says what to launch.
"""

from __future__ import annotations

import torch

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.reference import climb_blocks as reference
from locpmap.kernels.triton.block_launches import FOREST, JOINT, Climb, launches
from locpmap.kernels.triton.climb.forest_blocks import improve_forests
from locpmap.kernels.triton.climb.joint_blocks import improve_joint
from locpmap.kernels.triton.perturb import begin, perturb

SWEEPS_PER_CHECK = 8  # sweeps are launched without waiting: a climb on an image takes 5 to 9
ROUNDING = {torch.float64: reference.ROUNDING, torch.float32: 1e-6}


def climb_blocks(
    model: Model,
    plan: BlockPlan,
    perturbation: Perturbation,
    start: int,
    given: torch.Tensor,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Fill ``labels`` (hi - lo, S, R); returns the last sweep that changed anything, (hi - lo, R)."""
    unary, n_samples = model.unary[lo:hi], labels.shape[2]
    key = (first_image + lo, first_sample)
    noisy = perturb(unary, model.site_id, perturbation, *key, n_samples)
    begin(unary, noisy, model.site_id, perturbation, start, given[lo:hi], *key, labels)
    placed, runs = launches(model, plan)
    ways = {run.how for run in runs}
    small = torch.uint8 if unary.shape[2] <= 256 else torch.int16
    choice = torch.empty(noisy.shape if ways != {JOINT} else 1, dtype=small, device=noisy.device)
    message = torch.empty(noisy.shape if FOREST in ways else 1, dtype=noisy.dtype, device=noisy.device)
    changed = torch.zeros((hi - lo, n_samples), dtype=torch.int32, device=noisy.device)
    stamps = torch.zeros((hi - lo, len(plan.joint), n_samples), dtype=torch.int32, device=noisy.device)

    climb = Climb(labels, changed, stamps, labels.shape[1], n_samples, len(plan.joint))
    rounding = ROUNDING[noisy.dtype]
    for number in range(1, max_sweeps + 1):
        for turn, run in enumerate(runs, len(runs) * (number - 1) + 1):
            when = (lo, number, turn, rounding)
            if run.how == JOINT:
                improve_joint(model, placed, run, len(runs), perturbation, first_image, first_sample, climb, *when)
            else:
                improve_forests(model, placed, run, noisy, choice, message, climb, *when)
        # Sweeps after the last that changed anything do nothing, so that asking late changes no result.
        if number % SWEEPS_PER_CHECK == 0 and bool((changed < number).all()):
            break
    return changed
