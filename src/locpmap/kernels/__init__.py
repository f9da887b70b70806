"""Loops over plain arrays, once per backend, behind one contract (`kernels.spec`).

``reference`` is NumPy, slow and readable: the truth that the others are compared with.  ``numba`` runs on the CPU,
``triton`` on an NVIDIA GPU.  Each operation of the CPU is a function of ranges, ``kernels/<backend>/<operation>.py``,
and `kernels.cpu` runs them in threads.  `kernels.placement` decides where to run.
"""

from locpmap.kernels.model import Model

__all__ = ["Model"]
