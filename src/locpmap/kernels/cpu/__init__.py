"""The contract of `kernels.spec` on the CPU, implemented with the per-range functions of ``reference`` or ``numba``."""
