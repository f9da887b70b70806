"""Numerical kernels on plain arrays, one set per backend, behind one contract (`kernels.spec`).

``reference`` is the reference implementation in NumPy: slow, readable, and the one that tests compare the others with.
``numba`` runs on the CPU, ``triton`` on an NVIDIA GPU.  On the CPU, ``kernels/<backend>/<operation>.py`` holds one
function that processes a range of images or sites; `kernels.cpu` runs it in threads.  `kernels.placement` selects the
backend and the device.
"""

from locpmap.kernels.model import Model

__all__ = ["Model"]
