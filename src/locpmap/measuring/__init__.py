"""Error bars on what people measure in label maps: areas, counts, perimeters, or anything else."""

from locpmap.measuring.api import measure
from locpmap.measuring.measurement import Measurement

__all__ = ["Measurement", "measure"]
