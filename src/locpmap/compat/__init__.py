"""The calls of other libraries, translated: put ``locpmap.compat`` where a program says ``pydensecrf``.

>>> import locpmap.compat.densecrf as dcrf
>>> from locpmap.compat.utils import unary_from_softmax
"""
