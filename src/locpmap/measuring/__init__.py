"""Uncertainty of quantities measured in label maps: areas, counts, perimeters, or any function of a map."""

from locpmap.measuring.api import measure
from locpmap.measuring.measurement import Measurement
from locpmap.measuring.region_table import regions

__all__ = ["Measurement", "measure", "regions"]
