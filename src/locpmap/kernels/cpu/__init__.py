"""The contract on the CPU, over the per-range functions of the reference or of their compiled twins."""
