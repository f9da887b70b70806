"""Drop-in replacements for other libraries: import ``locpmap.compat`` instead of ``pydensecrf``.

>>> import locpmap.compat.densecrf as dcrf
>>> from locpmap.compat.utils import unary_from_softmax
"""
