"""Hypothesis settings and random generators of all tests: every run, in any order, draws the same cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from tests.support import odd_models

settings.register_profile(
    "reproducible",
    derandomize=True,
    database=None,
    deadline=None,  # the first case may compile a kernel
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("reproducible")

START = np.random.default_rng(0).bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """Restart the generators that the tests of a module, or of all modules, share."""
    modules: tuple[Any, ...] = (odd_models, getattr(request.node, "module", None))
    for module in modules:
        if hasattr(module, "RNG"):
            module.RNG.bit_generator.state = START
