"""Placeholder until files move to folders."""

from locpmap.kernels.triton.sweep_messages import pass_linear  # noqa: F401
