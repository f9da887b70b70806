"""Calibration of LocPMAP's probabilities by a noise temperature and a scale of the unary scores."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.inference import ErrorFields, LocPMAP, infer
from locpmap.learning.batches import VOID, Batch, thinned_to
from locpmap.learning.fit import Progress
from locpmap.potentials import Potentials

MAX_SITES = 100_000  # labelled, of the images that are decoded
LARGEST = 8.0  # both factors are between 1/8 and 8


@dataclass(frozen=True)
class Calibration:
    """Result of :meth:`locpmap.CRF.calibrate`.

    Attributes:
        temperature (float): Factor of LocPMAP's noise.
        scale (float): Factor of the unary scores.
        before (float or None): Negative log-likelihood per held-out site with both factors 1. None if the model was not
            calibrated, or calibrated with error fields.
        after (float or None): Negative log-likelihood per held-out site with the fitted factors; never above
            ``before``.
        fields (ErrorFields or None): Error fields of ``calibrate(.., fields=True)``.

    Notes:
        Errors of neighbouring pixels are similar. With error fields (:class:`locpmap.ErrorFields`), samples differ in
        whole regions, and intervals of areas are realistic. The sizes of the fields in cells of 4 to 64 pixels (at most
        the size of the images), their shared offset, and the temperature are learned. All weights stay as they were
        fitted, and the scale is 1. The loss consists of proper scores of 8 samples of up to 100 images: CRPS of
        areas, energy score, and likelihood of the probabilities, as log ratios to samples without fields. It is higher
        if true values lie outside the range of samples too often or too rarely. Each change has to lower the loss by
        half a standard error. If the fields as a whole do not lower it by a standard error, an earlier calibration is
        kept.

        ``probability`` remains LocPMAP's: the mean over samples of the conditional probability of a label, given the
        sample's neighbours and its fields.
    """

    temperature: float = 1.0
    scale: float = 1.0
    before: float | None = None
    after: float | None = None
    fields: ErrorFields | None = None

    def options(self, potentials: Potentials) -> dict[str, Any]:
        """Return the options of LocPMAP for a model."""
        fields = {} if self.fields is None else {"fields": self.fields.within(max(potentials.structure.shape))}
        return {"temperature": self.temperature, **fields}


def calibrate(
    batches: Sequence[Batch],
    model: Callable[[Batch, float], Potentials],
    n_samples: int,
    seed: int,
    max_evaluations: int,
    progress: Progress | None,
) -> Calibration:
    """Fit temperature and scale to labelled data; ``model(batch, scale)`` returns the model of a batch.

    Minimise the loss by Nelder-Mead on a logarithmic scale.  It is never larger than at temperature 1 and scale 1.
    """
    from scipy.optimize import minimize

    source, bound, done = thinned_to(batches, MAX_SITES), np.log(LARGEST), itertools.count(1)

    def factors(x: Array) -> list[float]:
        return np.exp(np.clip(x, -bound, bound)).tolist()

    def loss(x: Array) -> float:
        temperature, scale = factors(x)
        decoder = LocPMAP(n_samples, temperature=temperature)
        total, count = 0.0, 0
        for batch in source:
            known = batch.labels != VOID
            probability = np.asarray(infer(model(batch, scale), decoder, seed=seed).probability, np.float64)
            rows = probability.reshape(*batch.labels.shape, -1)[known]
            total -= float(np.log(np.maximum(rows[np.arange(len(rows)), batch.labels[known]], 1e-300)).sum())
            count += len(rows)
        if count == 0:
            raise InputError("no site has a label that counts, expected labelled data")
        if progress is not None:
            progress(next(done), max_evaluations, total / count)
        return total / count

    before = loss(np.zeros(2))
    simplex = [[0.0, 0.0], [0.4, 0.0], [0.0, -0.4]]
    options = {"initial_simplex": simplex, "maxfev": max_evaluations, "xatol": 0.01, "fatol": 1e-6}
    end = minimize(loss, np.zeros(2), method="Nelder-Mead", options=options)
    if not end.fun < before:
        return Calibration(before=before, after=before)
    temperature, scale = factors(end.x)
    return Calibration(temperature, scale, before, float(end.fun))
