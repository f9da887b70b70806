"""Doctests of parts whose package is not installed are left out; tiny problems get no threads from OpenBLAS."""

import os
from importlib.util import find_spec

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: its threads slow small fits tenfold

OPTIONAL = {
    **dict.fromkeys(("src/locpmap/nn", "src/locpmap/kernels/torch", "paper/src", "paper/tests"), "torch"),
    "src/locpmap/kernels/triton": "triton",
    "src/locpmap/estimators": "sklearn",
    "src/locpmap/scale": "dask",
}
collect_ignore_glob = [f"{part}/*" for part, package in OPTIONAL.items() if find_spec(package) is None]
