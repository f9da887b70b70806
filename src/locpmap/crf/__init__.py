"""The model users hold."""

from locpmap.crf.calibration import Calibration
from locpmap.crf.crf import CRF

__all__ = ["CRF", "Calibration"]
