"""The reference implementation in NumPy: written to be read; tests compare all other backends with it."""
