"""Placeholder until files move to folders."""

from locpmap.kernels.triton.sweep_messages import pass_messages  # noqa: F401
