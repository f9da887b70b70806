"""`Decision`: decided labels, with their expected value and risk."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array, is_tensor, namespace


@dataclass(frozen=True, eq=False, repr=False)
class Decision:
    """Labels decided for a measure, with their expected value and risk.

    Attributes:
        labels (array): Labels, an array or tensor of the shape of ``result.labels``.  They are -1 where the decision
            abstains, and at masked sites.
        expected (float or array): Expected value of the measure before abstention, or the expected cost per site: one
            per image of a batch, or one of the data set.
        risk (float or array): Expected fraction of wrong labels among the decided sites, in the shape of ``kept``.
        kept (float or array): Fraction of the sites that are not masked at which a label is decided: one per image, or
            one of the whole batch with ``over="dataset"``.
        measure (str): "iou", "dice", "boundary_iou", "accuracy" or "cost".
        guaranteed (float or None): With a guarantee, the largest fraction of an image's sites with a wrong label, on
            average over new images.

    Example:
        >>> probability = np.array([[[0.6, 0.4], [0.9, 0.1], [0.2, 0.8]]])
        >>> decision = lp.infer(lp.Potentials.grid(np.log(probability), 0.0), "exact").decide("accuracy", abstain=0.2)
        >>> decision.labels.tolist(), round(decision.risk, 2), round(decision.kept, 2)
        ([[-1, 0, 1]], 0.15, 0.67)

    See Also:
        :meth:`Result.decide`.
    """

    labels: Any
    expected: Any
    risk: Any
    kept: Any
    measure: str
    guaranteed: float | None = None

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {_number(getattr(self, name))}" for name in ("expected", "risk", "kept"))
        promise = "" if self.guaranteed is None else f", at most {self.guaranteed:g} wrong guaranteed"
        return f"<Decision for {self.measure}: labels {tuple(map(int, self.labels.shape))}, {numbers}{promise}>"


def _number(value: Any) -> str:
    """Return a number with four digits, or the range of several."""
    low, high = (f"{float(end):.4g}" for end in (np.min(value), np.max(value)))
    return low if np.ndim(value) == 0 else f"{low} to {high}"


def abstain_from(labels: Any, own: Any, limit: float | None, least: float | None) -> tuple[Any, float, float]:
    """Return labels (S,), -1 at the fewest sites such that the risk is at most ``limit``, with risk and kept fraction.

    With ``least``, labels are -1 where their probability is below it, whatever the limit.

    ``own`` (S,) is the probability of each label.  The risk, the mean of 1 - own, is lowest for given size if the sites
    with the largest probability are kept.  Cost: one sort if there is a limit.
    """
    n_sites = len(labels)
    if not n_sites:
        return labels, 0.0, 1.0
    wrong = 1 - (own.double() if is_tensor(own) else own.astype(np.float64))
    if limit is None:
        return labels, float(wrong.mean()), 1.0
    xp = namespace(labels)
    if least is not None:
        sure = own >= least
        n_kept = int(sure.sum())
        return xp.where(sure, labels, -1), float(wrong[sure].mean()) if n_kept else 0.0, n_kept / n_sites
    order = wrong.argsort(stable=True)
    sums = wrong[order].cumsum(0)
    size = xp.arange(1, n_sites + 1, device=labels.device) if is_tensor(labels) else np.arange(1, n_sites + 1)
    n_kept = int((sums <= limit * size + 1e-12).sum())  # means of increasing values increase
    left = labels + 0
    left[order[n_kept:]] = -1
    return left, float(sums[n_kept - 1]) / n_kept if n_kept else 0.0, n_kept / n_sites


def own_probability(rows: Any, labels: Any) -> Array:
    """Return the probability (S,) of each site's label."""
    if is_tensor(rows):
        return rows.gather(1, labels[:, None])[:, 0]
    return np.take_along_axis(rows, labels[:, None], axis=1)[:, 0]
