"""Compiled loops for the CPU; every function releases the interpreter's lock and is cached on disk."""
