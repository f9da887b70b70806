"""Decisions from probabilities: labels with the best expected value of a measure, and abstention."""

from locpmap.deciding.api import decide
from locpmap.deciding.decider import Decider
from locpmap.deciding.decision import Decision

__all__ = ["Decider", "Decision", "decide"]
