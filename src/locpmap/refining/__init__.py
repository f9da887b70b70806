"""Refine the segmentations that networks give: `refine`, and `Refiner`, which learns on your own data."""

from locpmap.refining.guiding import RADII, guided_log_mean
from locpmap.refining.refiner import Refiner, refine

__all__ = ["RADII", "Refiner", "guided_log_mean", "refine"]
