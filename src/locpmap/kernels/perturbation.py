"""How a run perturbs the unaries and where it starts, as plain numbers that kernels can take."""

from __future__ import annotations

from typing import NamedTuple

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
