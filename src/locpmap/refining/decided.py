"""Gain from deciding for a measure, on images that were scored with weights learned without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from locpmap.arrays import Array
from locpmap.deciding import Decider, decide
from locpmap.deciding.inputs import TITLES
from locpmap.deciding.sampled import overlap_of_maps
from locpmap.errors import InputTypeError, one_of
from locpmap.refining.groups import totals_of_groups
from locpmap.refining.scoring import N_STANDARD_ERRORS, confusion, difference, total

OBJECTIVES = ("iou", "dice")
IMAGE, DATASET = "per image", "over the data set"


Confusions: TypeAlias = tuple[Array, ...]  # (K, K) each: of the labels, and as decided per image and over the data set


@dataclass(frozen=True, eq=False)
class Gain:
    """Confusion matrices of each image, by true and decided label."""

    measure: str
    images: Sequence[Confusions]
    groups: Sequence[int] = ()  # of related images, one number per image; by default each image is a group

    def values(self) -> dict[str, tuple[float, float, float]]:
        """Return the measure of the labels, the difference that deciding makes, and its jackknife standard error."""
        before, image, dataset = zip(*self.images, strict=True)
        overlap, found = partial(overlap_of_maps, self.measure), {}
        single = [[np.array([overlap(one), 1.0]) for one in each] for each in (before, image)]  # sums over 1 image
        for where, tables, metric in ((IMAGE, single, _mean), (DATASET, (before, dataset), overlap)):
            old, new = (totals_of_groups(each, self.groups or range(len(before))) for each in tables)
            found[where] = (metric(total(old)), *difference(new, old, metric))
        return found

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


def _mean(sums: Array) -> float:
    """Return the mean of numbers, from their sum and their count."""
    return float(sums[0] / sums[1])
