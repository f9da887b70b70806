"""What a log-linear model sees of an input: numbers per site and per edge, given or taken from images."""

from locpmap.features.features import CONSTANT, DIRECTIONS, Features
from locpmap.features.given import GivenUnary, features_from_dict
from locpmap.features.images import ImageFeatures

__all__ = ["CONSTANT", "DIRECTIONS", "Features", "GivenUnary", "ImageFeatures", "features_from_dict"]
