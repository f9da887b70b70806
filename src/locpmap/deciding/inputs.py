"""Validation of the inputs of a decision, and the sites that are not masked."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, is_tensor, namespace, on_gpu, to_numpy
from locpmap.deciding.measures import OVERLAPS, Measure
from locpmap.deciding.statistics import Masses, label_masses
from locpmap.errors import InputError, InputTypeError, unknown

TITLES = {"iou": "mean IoU", "dice": "mean Dice", "boundary_iou": "mean boundary IoU", "accuracy": "accuracy"}
MEASURES = tuple(TITLES)
OTHER_NAMES = {"jaccard": "iou", "miou": "iou", "mean_iou": "iou", "f1": "dice", "f1_score": "dice"}
LARGEST_COST = 1e30  # so that sums are finite in single precision
LEAST = 1e-6  # presence of labels without probability
TOLERANCE = 1e-2  # of the sum of probabilities, which may be in half precision


class Sites(NamedTuple):
    """The sites of one image that are not masked."""

    rows: Any  # (S, L) probabilities, contiguous
    there: Any  # (..) booleans in the shape of the image, None if no site is masked
    independent: bool  # sites of a graph, whose labels occur if one of them has the label

    def masses(self) -> Masses:
        """Return totals, largest probability and presence of each label."""
        found = label_masses(self.rows)
        if not self.independent:
            return found
        absent = namespace(self.rows).prod(1 - self.rows, 0)
        return found._replace(presence=np.maximum(1 - to_numpy(absent, "absent"), LEAST))

    def spread(self, labels: Any, shape: tuple[int, ...]) -> Any:
        """Return labels (S,) as a map, -1 at masked sites."""
        if self.there is None:
            return labels.reshape(shape)
        whole = labels.new_full(shape, -1) if is_tensor(labels) else np.full(shape, -1, labels.dtype)
        whole[self.there] = labels
        return whole


def sites_of(probability: Any, there: Any) -> Sites:
    """Return the sites of an image (.., L) at which ``there`` (..) is true."""
    independent = probability.ndim == 2
    if bool(there.all()):
        rows = probability.reshape(-1, probability.shape[-1])
        return Sites(rows.contiguous() if is_tensor(rows) else np.ascontiguousarray(rows), None, independent)
    return Sites(probability[there], there, independent)


def images_of(result: Any) -> list[Sites]:
    """Return the sites of every image of a result, or of an array (.., L) of one image."""
    if not hasattr(result, "potentials"):
        return [_image_of(result)]
    if result.probability is None:
        raise InputError(no_probability(result.method))
    p, there = as_float(result.probability), as_labels(result.labels) >= 0
    return list(map(sites_of, p, there)) if result.potentials.batched else [sites_of(p, there)]


def _image_of(probability: Any) -> Sites:
    p = as_float(probability)
    if p.ndim < 2 or 0 in p.shape:
        raise InputError(f"result has shape {tuple(p.shape)}, expected probabilities (.., labels)")
    sums = p.sum(-1)
    if not (float(p.min()) >= 0 and float((abs(sums - 1) * (sums != 0)).max()) <= TOLERANCE):
        raise InputError("result holds values that are no probabilities, expected sums of 1, or of 0 at masked sites")
    return sites_of(p, sums > 0)


def as_float(probability: Any) -> Any:
    """Return the array in single or double precision: a tensor on a GPU there, anything else with NumPy."""
    if on_gpu(probability):
        torch = namespace(probability)
        return probability if probability.dtype in (torch.float32, torch.float64) else probability.float()
    found = to_numpy(probability, "result")
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float32)


def as_labels(labels: Any) -> Any:
    """Return labels as int64: a tensor on a GPU there, anything else with NumPy."""
    return labels.long() if on_gpu(labels) else to_numpy(labels, "labels").astype(np.int64, copy=False)


def no_probability(method: str) -> str:
    """Return the error message for a result without probabilities."""
    return f"the result of {method} has labels only, expected a method with probabilities, such as 'locpmap'"


def unknown_measure(what: str, measure: str, known: Iterable[str] = MEASURES) -> InputError:
    """Return the error for an unknown measure, which may be another name of a known one."""
    same = OTHER_NAMES.get(measure.lower().replace("-", "_").replace(" ", "_"))
    return InputError(f"unknown {what} {measure!r}: did you mean {same!r}?") if same else unknown(what, measure, known)


def overlap_of(measure: Any) -> Measure:
    """Return the overlap function of a decider's measure; raise for other measures."""
    if not isinstance(measure, str):
        raise InputTypeError(f"measure is a {type(measure).__name__}, expected 'iou' or 'dice' for a decider")
    if measure in MEASURES and measure not in OVERLAPS:
        raise InputError(f"measure is {measure!r}, expected 'iou' or 'dice' for a decider")
    if measure not in OVERLAPS:
        raise unknown_measure("measure", measure, OVERLAPS)
    return OVERLAPS[measure]


def cost_of(measure: Any, n_labels: int) -> Array:
    """Return the costs (L, L) of a decision, cost[true, decided], as float64."""
    cost = to_numpy(measure, "measure").astype(np.float64)
    if cost.shape != (n_labels, n_labels):
        raise InputError(
            f"measure has shape {cost.shape}, expected a name or costs {(n_labels, n_labels)} of true and decided label"
        )
    if not np.isfinite(cost).all():
        raise InputError("measure contains NaN or infinity, expected finite costs")
    if (largest := np.abs(cost).max()) > LARGEST_COST:
        raise InputError(f"measure has a cost of size {largest:g}, expected at most {LARGEST_COST:g}")
    return cost
