"""The truth: NumPy, written to be read."""
