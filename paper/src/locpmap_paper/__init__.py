"""Experiments of the paper on Local Perturb-and-MAP: data sets, models, runs and reports.

The package uses only public names of `locpmap`.
"""

__version__ = "0.1.0"
