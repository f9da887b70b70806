"""Samplers with a refiner's learned errors, and the probabilities of their samples, for images and for tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from locpmap.arrays import Array, cast
from locpmap.inference import ErrorFields, LocPMAP, samples
from locpmap.potentials import Potentials
from locpmap.refining.adapting import per_image
from locpmap.refining.presence import presence_of
from locpmap.refining.scoring import softmax
from locpmap.refining.weights import CELL, Adjustment, Errors, Weights
from locpmap.result import Result


def errors_of(weights: Weights, adjustment: Adjustment, stride: float) -> Errors:
    """Return the parameters of samples at a stride; the temperature divides errors like all scores."""
    errors = weights.errors_at(stride)
    sizes = tuple(size / adjustment.temperature for size in errors.sizes)
    votes = min(1.0, adjustment.strength * errors.votes)
    return errors._replace(sizes=sizes, shared=errors.shared / adjustment.temperature, votes=votes)


def fields_of(errors: Errors, side: int, fractions: Callable[[], Array | None]) -> ErrorFields:
    """Return the learned error fields of an image whose larger side is ``side``.

    ``fractions`` returns the predicted area fractions (.., L), which determine the presence of labels. Where they are
    None or NaN, because a score is -inf, all labels are present. ``fractions`` is called only if presence
    was learned.
    """
    found = fractions() if errors.half > 0 else None
    presence = None if found is None else presence_of(found, errors.half, errors.steepness)
    return ErrorFields(errors.sizes, CELL, errors.shared, presence).within(side)


def with_errors(decoder: LocPMAP, errors: Errors, fields: Callable[[], ErrorFields]) -> LocPMAP:
    """Return the decoder with the learned error fields and noise, unless it has fields of its own."""
    if decoder.fields is not None:
        return decoder
    return replace(decoder, fields=fields(), temperature=decoder.temperature * errors.noise)


def averaged(potentials: Potentials, result: Result, decoder: LocPMAP, votes: Any, marginals: Any = None) -> Result:
    """Return the result with the labels and probabilities of a refiner, given the fractions of its samples.

    The samples are label maps without calibrated marginals; the softmax of the unaries is calibrated. The probability
    is their weighted mean, with weight ``votes`` for the fractions. Its argmax would have specks wherever two labels
    are about equally probable. The labels are therefore those of a climb of the decoder without noise and errors,
    which starts at the best unary scores. ``votes`` may be one number per image, (N,). ``marginals`` is the softmax of
    the unaries, if it is known.
    """
    marginals = softmax(potentials.unary) if marginals is None else marginals
    probability = result.probability
    probability *= per_image(votes if isinstance(votes, float) else potentials.restore(votes), probability.ndim)
    probability += potentials.restore(potentials.unflatten(marginals * per_image(1 - votes, marginals.ndim)))
    ascent = replace(decoder, n_samples=1, start="perturbed", temperature=0.0, fields=None)
    labels = cast(next(samples(potentials, ascent, device=result.device)), "int64")
    if potentials.masked is not None:
        probability[labels < 0] = 0
    return replace(result, probability=probability, labels=labels)
