"""Plain tensor operations in float64, on a GPU where there is one; NumPy arrays in and out as in the other backends."""
