"""Gain from deciding for a measure, on images that were scored with weights learned without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from locpmap.arrays import Array
from locpmap.deciding import Decider, decide
from locpmap.deciding.inputs import TITLES
from locpmap.errors import InputTypeError, one_of
from locpmap.refining.scoring import N_STANDARD_ERRORS, confusion

OBJECTIVES = ("iou", "dice")
IMAGE, DATASET = "per image", "over the data set"


Confusions: TypeAlias = tuple[Array, ...]  # (K, K) each: of the labels, and as decided per image and over the data set


@dataclass(frozen=True, eq=False)
class Gain:
    """Confusion matrices of each image, by true and decided label."""

    measure: str
    images: Sequence[Confusions]

    def values(self) -> dict[str, tuple[float, float, float]]:
        """Return the measure of the labels, the difference that deciding makes, and its jackknife standard error."""
        found = (np.stack(each) for each in zip(*self.images, strict=True))
        before, image, dataset = found
        n = len(before)
        single = _overlap(self.measure, image) - _overlap(self.measure, before)
        old, new = (_overlap(self.measure, each.sum(0)) for each in (before, dataset))
        without = [_overlap(self.measure, each.sum(0) - each) for each in (before, dataset)]
        errors = np.sqrt(np.var(single) / max(1, n - 1)), np.sqrt((n - 1) * np.var(without[1] - without[0]))
        return {
            IMAGE: (float(_overlap(self.measure, before).mean()), float(single.mean()), float(errors[0])),
            DATASET: (float(old), float(new - old), float(errors[1])),
        }

    def __str__(self) -> str:
        lines = [
            f"{TITLES[self.measure]} {where} {old:.4f}, decided {change:+.4f} ± {error:.4f}"
            for where, (old, change, error) in self.values().items()
        ]
        return "\n".join([*lines, self.verdict])

    @property
    def verdict(self) -> str:
        """One sentence on whether deciding helps, per image and over the data set, by more than two standard errors."""
        found = (_verdict(where, change, error) for where, (_, change, error) in self.values().items())
        return f"Deciding {' and '.join(found)}."


def _verdict(where: str, change: float, error: float) -> str:
    size = f"{abs(change):.4f} ± {error:.4f} {where}"
    if abs(change) > N_STANDARD_ERRORS * error:
        return f"gains {size}" if change > 0 else f"loses {size}"
    return f"does not help {where} ({change:+.4f} ± {error:.4f})"


def checked_objective(objective: Any) -> str | None:
    """Return the objective, or raise if it is unknown."""
    if objective is not None and not isinstance(objective, str):
        raise InputTypeError(f"objective is a {type(objective).__name__}, expected 'iou' or 'dice'")
    return None if objective is None else one_of("objective", objective, OBJECTIVES)


class Judged(NamedTuple):
    """A refined image with its true labels."""

    labels: Array  # (H, W)
    probability: Array  # (H, W, K), in half precision to save memory
    truth: Array  # (H, W), negative where it is unknown


def confusions(measure: str, images: Sequence[Judged]) -> list[Confusions]:
    """Decide images with their own statistics and with those of all of them; no decision depends on true labels."""
    decider = Decider(measure)
    for one in images:
        decider.add(one.probability)
    found = []
    for labels, probability, truth in images:
        decided = (decide(labels, probability, measure, over=over).labels for over in ("image", decider))
        found.append(tuple(confusion(each, truth, probability.shape[-1]) for each in (labels, *decided)))
    return found


def _overlap(measure: str, confusion: Array) -> Array:
    """Return the mean overlap (..) of confusion matrices (.., K, K), over labels that occur."""
    both = np.diagonal(confusion, axis1=-2, axis2=-1)
    sums = confusion.sum(-1) + confusion.sum(-2)
    over = sums - both if measure == "iou" else sums / 2
    return np.divide(both, over, out=np.zeros(both.shape), where=over > 0).sum(-1) / np.maximum(1, (over > 0).sum(-1))
