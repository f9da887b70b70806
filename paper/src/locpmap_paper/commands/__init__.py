"""The commands ``reproduce``, ``report`` and ``data`` that this package adds to ``locpmap``."""
