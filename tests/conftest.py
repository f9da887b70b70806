"""Settings that all tests share: property tests draw the same cases on every run and leave no files behind."""

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
