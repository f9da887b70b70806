"""Intervals of quantities with a guarantee, from samples and true values of calibration images.

An interval is the mean of the samples ± a factor times their spread. The factor is a conformal quantile of
``|true value - mean| / spread`` over the calibration images.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.guarantees.conformal import check_number, conformal_quantile, controlled_quantile, images_needed

N_SAMPLES = 50  # per image; a measurement with more samples uses its first ones
FLOOR = 0.3  # added to standard deviations, in units of their median over images
ENDS = {"presence": (0.0, 1.0)} | dict.fromkeys(("area", "components", "perimeter", "volume", "surface"), (0.0, np.inf))


class Moments(NamedTuple):
    """Mean and standard deviation of the samples of an image, (K,) each, or (n, K) for n images."""

    mean: Array
    std: Array

    @classmethod
    def of(cls, values: Array) -> Self:
        """Return the moments of the first samples of values (M, .., K)."""
        return cls(values[:N_SAMPLES].mean(axis=0), values[:N_SAMPLES].std(axis=0, ddof=1))


@dataclass(frozen=True, eq=False)
class Calibration:
    """Moments and true values of a quantity in n calibration images, (n, K) each.

    Images in which a label varies between samples (its standard deviation is not 0) and the others form two groups, so
    that images without a label do not make the intervals of the others narrower.
    """

    moments: Moments
    truth: Array

    def interval(self, new: Moments, level: float, jointly: bool) -> tuple[Array, Array]:
        """Return the interval of a new image, (K,) each.

        The spread is the standard deviation plus a floor, which depends in the same way on the calibration images and
        on the new image. Their scores are therefore exchangeable if the images are.
        """
        n = len(self.truth)
        check_number(n, level)
        floor = _floor(np.concatenate([self.moments.std, new.std[None]]))
        scores = np.abs(self.truth - self.moments.mean) / (self.moments.std + floor)
        varies = self.moments.std > 0
        if jointly:
            factor: float | Array = conformal_quantile(scores.max(axis=1), level)
        else:
            weights = varies / np.maximum(varies.sum(axis=1, keepdims=True), 1)
            pooled = controlled_quantile(scores, weights, level) if varies.any() else 0.0
            groups = varies == (new.std > 0)
            rare = np.where(new.std > 0, pooled, 0.0)
            factor = np.array([_factor(*each, level) for each in zip(scores.T, groups.T, rare, strict=True)])
        width = factor * (new.std + floor)
        return new.mean - width, new.mean + width


def _factor(scores: Array, group: Array, pooled: float, level: float) -> float:
    """Return the quantile of the scores of the new image's group, or of all images if one of two groups is too small.

    The condition on the sizes includes the new image and is symmetric in all images, which keeps the scores
    exchangeable. A condition on the new image's group alone would lower the coverage in small groups. ``pooled``, the
    quantile of all labels together, can only widen the interval.
    """
    needed, n_others = images_needed(level), int((~group).sum())
    if group.sum() >= needed and (n_others == 0 or n_others > needed):
        return conformal_quantile(scores[group], level)
    return max(conformal_quantile(scores, level), pooled)


def _floor(std: Array) -> Array:
    """Return a fraction of the median standard deviation, over the images in which it is not 0: (K,).

    Where it is 0 in all images, use the smallest of the other labels, or 1 if there is none.
    """
    positive = np.where(std > 0, std, np.nan)
    known = (std > 0).any(axis=0)
    medians = np.ones(std.shape[1])
    if known.any():
        medians[known] = np.nanmedian(positive[:, known], axis=0)
        medians[~known] = medians[known].min()
    return FLOOR * medians
