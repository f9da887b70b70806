"""Placeholder until files move to folders."""

from locpmap.kernels.triton.conditionals import grid_conditionals  # noqa: F401
