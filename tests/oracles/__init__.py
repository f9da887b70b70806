"""Exact reference results that the library is tested against.

No module here imports ``locpmap``, so that an oracle cannot share a bug with the code under test.
Larger scores are better.  Models are ``unary (S, L)``, ``edges (E, 2)`` and ``tables (E, L, L)``, indexed
``[edge, label of edges[e, 0], label of edges[e, 1]]``.  A score of −inf marks a forbidden label or pair.
"""
