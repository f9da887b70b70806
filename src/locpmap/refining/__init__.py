"""Refinement of network segmentations: the function `refine`, and `Refiner`, which can be trained on your own data."""

from locpmap.refining.api import refine
from locpmap.refining.drawing import draw, interval_of
from locpmap.refining.guiding import RADII, guided_log_mean
from locpmap.refining.model import resize
from locpmap.refining.prepared import Prepared
from locpmap.refining.reading import read
from locpmap.refining.refiner import Refiner

__all__ = ["RADII", "Prepared", "Refiner", "draw", "guided_log_mean", "interval_of", "read", "refine", "resize"]
