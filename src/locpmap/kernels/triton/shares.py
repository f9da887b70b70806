"""Placeholder until files move to folders."""

from locpmap.kernels.triton.votes import shares  # noqa: F401
