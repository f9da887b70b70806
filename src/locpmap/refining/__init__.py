"""Refine the segmentations that networks give: `refine`, and `Refiner`, which learns on your own data."""

from locpmap.refining.refiner import Refiner, refine

__all__ = ["Refiner", "refine"]
