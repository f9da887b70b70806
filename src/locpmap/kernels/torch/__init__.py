"""Plain tensor operations, wherever the tensors are; those of learning take NumPy arrays and compute in float64."""
