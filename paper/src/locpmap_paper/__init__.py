"""The experiments of the paper on Local Perturb-and-MAP: data sets, models, runs and reports.

Built on the public names of `locpmap` alone.
"""

__version__ = "0.1.0"
