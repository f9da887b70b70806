"""Doctests of parts whose package is not installed are left out."""

from importlib.util import find_spec

OPTIONAL = {"nn": "torch", "kernels/torch": "torch", "estimators": "sklearn"}
collect_ignore_glob = [f"src/locpmap/{part}/*" for part, package in OPTIONAL.items() if find_spec(package) is None]
