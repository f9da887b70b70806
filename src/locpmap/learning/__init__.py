"""Learning of CRF weights from labelled data: (pseudo- and composite) likelihood, consistent and contrastive learning.

This package does not depend on any decoder: the last two receive their sampler as an argument.
"""

from locpmap.learning.options import FitOptions
from locpmap.learning.processes import Processes, joined_processes
from locpmap.learning.result import FitResult, FitStatus

__all__ = ["FitOptions", "FitResult", "FitStatus", "Processes", "joined_processes"]
