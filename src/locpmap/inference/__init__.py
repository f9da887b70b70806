"""Decoders.  Inference sees only potentials: never images, weights or data sets."""

from locpmap.inference.api import infer
from locpmap.inference.icm import ICM
from locpmap.inference.icm_iter import ICMIter
from locpmap.inference.locpmap import LocPMAP
from locpmap.inference.registry import DECODERS

__all__ = ["DECODERS", "ICM", "ICMIter", "LocPMAP", "infer"]
