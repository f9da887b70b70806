"""The conditional random field that users fit, decode, calibrate and save."""

from locpmap.crf.calibration import Calibration
from locpmap.crf.crf import CRF

__all__ = ["CRF", "Calibration"]
