"""The same operations in Triton, on tensors: signatures are the reference's, and outputs are filled in place.

All tensors of a call lie on one device.  A :class:`~locpmap.kernels.Model` holds tensors here (floating-point ones in
the unaries' precision), except ``class_ptr``, which stays a NumPy array: it says what to launch.
Nothing waits for the device, but for the question, once in several sweeps, whether climbs have ended.
"""
