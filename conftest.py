"""Leave out doctests of parts whose package is not installed; give tiny problems one thread of OpenBLAS and OpenMP."""

import os
from importlib.util import find_spec

# Before NumPy and torch are loaded: threads that wait for each other slow small fits tenfold and networks fourfold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

OPTIONAL = {
    **dict.fromkeys(("src/locpmap/nn", "paper/src", "paper/tests"), "torch"),
    "src/locpmap/kernels/triton": "triton",
    "src/locpmap/estimators": "sklearn",
    "src/locpmap/scale": "dask",
}
collect_ignore_glob = [f"{part}/*" for part, package in OPTIONAL.items() if find_spec(package) is None]
