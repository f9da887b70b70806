"""Numba kernels for the CPU; they release the global interpreter lock, and compiled code is cached on disk."""
