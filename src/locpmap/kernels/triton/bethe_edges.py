"""Placeholder until files move to folders."""

from locpmap.kernels.triton.log_beliefs import bethe_edges  # noqa: F401
