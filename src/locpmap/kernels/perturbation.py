"""How a run perturbs the unaries and where it starts, as plain numbers that kernels can take."""

from __future__ import annotations

from typing import NamedTuple

from locpmap.kernels.model import Array

# What happens to the unaries of a sample.
NONE, PLAIN, LOGISTIC, DROP = range(4)
# The first labelling of a climb.
RANDOM, PERTURBED, GIVEN = range(3)


class Perturbation(NamedTuple):
    """The scheme, its amount (the temperature, or the share of sites whose unaries are dropped) and the key."""

    scheme: int
    amount: float
    k0: int
    k1: int


class GridClimb(NamedTuple):
    """Climbs of n images in the lazy noise scheme, on a window of a 4-connected grid with Potts weights."""

    unary: Array  # (n, S, L)
    right: Array  # (1|n, H, W-1) weights
    down: Array  # (1|n, H-1, W)
    temperature: float
    k0: int
    k1: int
    first_image: int
    first_sample: int
    start: int
    given: Array  # (n, S) labels to start from
    row: int  # of the window's corner
    column: int
    full_width: int  # of the whole grid
    max_sweeps: int
