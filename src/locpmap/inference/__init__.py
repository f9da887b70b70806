"""Decoders.  Inference sees only potentials: never images, weights or data sets."""

from locpmap.inference.api import infer
from locpmap.inference.registry import DECODERS

__all__ = ["DECODERS", "infer"]
