"""Benchmarks of locpmap compared with other libraries; run with `make bench`."""
