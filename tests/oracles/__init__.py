"""Exact answers that the library is tested against.

Nothing here imports ``locpmap``: an oracle that shared code with what it judges would share its mistakes.
Convention: scores, larger is better; ``unary (S, L)``, ``edges (E, 2)``, ``tables (E, L, L)`` indexed
``[edge, label of edges[e, 0], label of edges[e, 1]]``; −inf is forbidden.
"""
