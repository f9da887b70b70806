"""A batch that a GPU has no memory for: half of the images after the other, with the same answers.

Decoders that climb for many samples make their own rounds smaller (`locpmap.inference.sampling`) before it comes to
this.  The images of a batch know nothing of one another.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from locpmap.arrays import Restore, namespace
from locpmap.inference.best import scores_of
from locpmap.inference.decoder import Array, Climbs, Decoder, Outcome, Problem, Progress, drive
from locpmap.kernels.reference.scores import total_scores
from locpmap.result import Status

ENDED_WELL = (Status.CONVERGED, Status.COMPLETE)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch found no memory on its device; by the error's name, for torch may not be there."""
    return type(error).__name__ == "OutOfMemoryError"


def drive_in_memory(
    decoder: Decoder, problem: Problem, max_seconds: float | None, progress: Progress | None
) -> tuple[Outcome, Status]:
    """As :func:`drive`, on as many images at a time as there is memory for; ``progress`` begins anew with each part."""
    began = time.perf_counter()
    try:
        return drive(decoder, problem, max_seconds, progress)
    except RuntimeError as error:
        if not out_of_memory(error) or not _separable(decoder, problem, max_seconds):
            raise
    # Out of the handler, which keeps what the failed attempt held.
    middle, halves = problem.potentials.n_images // 2, []
    for images, share in ((slice(0, middle), 0.5), (slice(middle, None), 1.0)):
        left = None if max_seconds is None else max(0.0, max_seconds - (time.perf_counter() - began)) * share
        halves.append(drive_in_memory(decoder, _part(problem, images), left, progress))
    return _joined([outcome for outcome, _ in halves]), _worse(*(status for _, status in halves))


def is_forbidden(problem: Problem, labels: Array) -> bool:
    """Whether the labels (N, S) of some image have pairs that a table forbids; found on the host if need be."""
    try:
        return bool((scores_of(problem, labels) == -np.inf).any())
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
    return bool(np.isneginf(total_scores(problem.potentials.to(None).model, Restore()(labels))).any())


def _separable(decoder: Decoder, problem: Problem, max_seconds: float | None) -> bool:
    """Whether there are several images, and the halves would come to what the whole comes to.

    They would not with labels to begin with, which are given for all, nor where the number of samples depends on time.
    """
    options = vars(decoder)
    if problem.potentials.n_images == 1 or not isinstance(options.get("start", ""), str):
        return False
    return "n_samples" not in options or max_seconds is None


def _part(problem: Problem, images: slice) -> Problem:
    whole, first = problem.potentials, problem.first_image + images.start
    part = whole.part(images)
    pairwise = replace(part.pairwise, whole_least=whole.pairwise.least_weight)  # the choice of noise depends on it
    return replace(problem, potentials=replace(part, pairwise=pairwise), first_image=first)


def _joined(outcomes: list[Outcome]) -> Outcome:
    first = outcomes[0]
    climbs = [outcome.climbs for outcome in outcomes if outcome.climbs is not None]
    return Outcome(
        labels=_stacked([outcome.labels for outcome in outcomes]),
        probability=_stacked([outcome.probability for outcome in outcomes]),
        n_sweeps=max(outcome.n_sweeps for outcome in outcomes),
        climbs=Climbs([part for climb in climbs for part in climb.sweeps], climbs[0].max_sweeps) if climbs else None,
        n_samples=first.n_samples,
        noise=first.noise,
        log_partition=_stacked([outcome.log_partition for outcome in outcomes]),
        log_partition_kind=first.log_partition_kind,
        samples=_stacked([outcome.samples for outcome in outcomes], axis=1),
    )


def _stacked(parts: list[Any], axis: int = 0) -> Any:
    return None if parts[0] is None else namespace(parts[0]).concatenate(parts, axis=axis)


def _worse(one: Status, other: Status) -> Status:
    return other if one in ENDED_WELL or other is Status.MAX_SECONDS else one
