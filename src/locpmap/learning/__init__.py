"""Learning of CRF weights from labelled data: pseudolikelihood, composite likelihood and consistent learning.

This package does not depend on any decoder: consistent learning receives its sampler as an argument.
"""

from locpmap.learning.options import FitOptions
from locpmap.learning.processes import Processes, joined_processes
from locpmap.learning.result import FitResult, FitStatus

__all__ = ["FitOptions", "FitResult", "FitStatus", "Processes", "joined_processes"]
