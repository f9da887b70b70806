"""Guarantees for new images by conformal prediction: intervals of quantities, sets of labels, and abstention."""

from locpmap.guarantees.guarantee import Guarantee
from locpmap.guarantees.source import Source

__all__ = ["Guarantee", "Source"]
