"""Hypothesis settings of all tests: every run draws the same cases and writes no files."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "reproducible",
    derandomize=True,
    database=None,
    deadline=None,  # the first case may compile a kernel
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("reproducible")
