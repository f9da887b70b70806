"""The number of CPU cores available to this process."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
