"""Samplers with a refiner's learned errors, and the probabilities of their samples, for images and for tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from locpmap.arrays import Array
from locpmap.inference import ErrorFields, LocPMAP
from locpmap.potentials import Potentials
from locpmap.refining.presence import presence_of
from locpmap.refining.scoring import softmax
from locpmap.refining.weights import CELL, Adjustment, Errors, Weights
from locpmap.result import Result


def errors_of(weights: Weights, adjustment: Adjustment, stride: float) -> Errors:
    """Return the parameters of samples at a stride; the temperature divides errors like all scores.

    Smoothing increases the weight of the samples in the probability from its learned value towards 1, because only the
    samples are smooth.
    """
    errors = weights.errors_at(stride)
    sizes = tuple(size / adjustment.temperature for size in errors.sizes)
    votes = 1 - (1 - min(1.0, adjustment.strength * errors.votes)) * math.exp(-adjustment.smoothing)
    return errors._replace(sizes=sizes, shared=errors.shared / adjustment.temperature, votes=votes)


def fields_of(errors: Errors, side: int, fractions: Callable[[], Array | None]) -> ErrorFields:
    """Return the learned error fields of an image whose larger side is ``side``.

    ``fractions`` returns the predicted area fractions (.., L), which determine the presence of labels. Where they are
    None or NaN, because a score is -inf, all labels are present. It is called only if presence was learned.
    """
    found = fractions() if errors.half > 0 else None
    presence = None if found is None else presence_of(found, errors.half, errors.steepness)
    return ErrorFields(errors.sizes, CELL, errors.shared, presence).within(side)


def with_errors(decoder: LocPMAP, errors: Errors, fields: Callable[[], ErrorFields]) -> LocPMAP:
    """Return the decoder with the learned error fields and noise, unless it has fields of its own."""
    if decoder.fields is not None:
        return decoder
    return replace(decoder, fields=fields(), temperature=decoder.temperature * errors.noise)


def averaged(potentials: Potentials, result: Result, votes: float) -> Result:
    """Return the result with a weighted mean of the samples' fractions and of the softmax of the unaries.

    The samples are label maps without calibrated marginals; the softmax of the unaries is calibrated. ``votes`` is the
    weight of the fractions.
    """
    probability = potentials.restore(potentials.unflatten(softmax(potentials.unary)))
    probability *= np.float32(1 - votes)
    probability += np.float32(votes) * result.probability
    labels = probability.argmax(-1)
    if potentials.masked is not None:
        masked = result.labels < 0
        probability[masked], labels[masked] = 0, -1
    return replace(result, probability=probability, labels=labels)
