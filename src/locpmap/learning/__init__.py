"""Learning weights from labelled data: pseudolikelihood, composite likelihood, and consistent learning.

Nothing here knows about decoders: the consistent objective is handed a sampler.
"""

from locpmap.learning.options import FitOptions
from locpmap.learning.processes import Processes, joined_processes
from locpmap.learning.result import FitResult, FitStatus

__all__ = ["FitOptions", "FitResult", "FitStatus", "Processes", "joined_processes"]
