"""Benchmarks against other people's libraries; run with `make bench`."""
