"""Features of log-linear models: numbers per site and per edge, given or computed from images."""

from locpmap.features.features import CONSTANT, DIRECTIONS, Features
from locpmap.features.given import GivenUnary, features_from_dict
from locpmap.features.images import ImageFeatures

__all__ = ["CONSTANT", "DIRECTIONS", "Features", "GivenUnary", "ImageFeatures", "features_from_dict"]
