"""Every method on every network: data sets × networks × strides × methods. `python -m benchmarks.arena --help`."""
