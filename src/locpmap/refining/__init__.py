"""Refinement of network segmentations: the function `refine`, and `Refiner`, which can be trained on your own data."""

from locpmap.refining.api import refine
from locpmap.refining.guiding import RADII, guided_log_mean
from locpmap.refining.refiner import Refiner

__all__ = ["RADII", "Refiner", "guided_log_mean", "refine"]
