"""Sweep until nothing changes, asking the device only once in several sweeps whether that is so."""

from __future__ import annotations

from collections.abc import Callable

import torch

SWEEPS_PER_QUESTION = 8  # a climb on an image takes 5 to 9


def sweep_until_still(sweep: Callable[[int], None], changed: torch.Tensor, max_sweeps: int) -> torch.Tensor:
    """Call ``sweep(1)``, ``sweep(2)``, ...; each notes its number in ``changed`` (n, R) where it changed a label.

    Sweeps after the last that changed anything do nothing, so that asking late changes no result.
    """
    for number in range(1, max_sweeps + 1):
        sweep(number)
        if number % SWEEPS_PER_QUESTION == 0 and bool((changed < number).all()):
            break
    return changed
