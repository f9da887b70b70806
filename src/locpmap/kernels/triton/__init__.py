"""The kernel contract in Triton, on tensors: signatures equal the reference's, and outputs are filled in place.

All tensors of a call are on one device.  A :class:`~locpmap.kernels.Model` holds tensors here (floating-point ones in
the unaries' precision), except ``class_ptr``: this NumPy array determines the launches, so it stays on the host.
The host synchronises with the device only to check, once in several sweeps, whether climbs have converged.
"""
