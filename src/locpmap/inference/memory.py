"""A batch that a GPU has no memory for: half of the images after the other, with the same answers.

Decoders that draw samples make their own rounds smaller (`locpmap.inference.sampling`); this is for all others, whose
images know nothing of one another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from locpmap.arrays import namespace
from locpmap.inference.decoder import Climbs, Decoder, Outcome, Problem, Progress, drive
from locpmap.result import Status

ENDED_WELL = (Status.CONVERGED, Status.COMPLETE)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch found no memory on its device; by the error's name, for torch may not be there."""
    return type(error).__name__ == "OutOfMemoryError"


def drive_in_memory(
    decoder: Decoder, problem: Problem, max_seconds: float | None, progress: Progress | None
) -> tuple[Outcome, Status]:
    """As :func:`drive`, on as many images at a time as there is memory for; ``progress`` begins anew with each part."""
    try:
        return drive(decoder, problem, max_seconds, progress)
    except RuntimeError as error:
        if not out_of_memory(error) or not _separable(decoder, problem):
            raise
    # Out of the handler, which keeps what the failed attempt held.
    middle, seconds = problem.potentials.n_images // 2, None if max_seconds is None else max_seconds / 2
    halves = [
        drive_in_memory(decoder, _part(problem, images), seconds, progress)
        for images in (slice(0, middle), slice(middle, None))
    ]
    return _joined([outcome for outcome, _ in halves]), _worse(*(status for _, status in halves))


def _separable(decoder: Decoder, problem: Problem) -> bool:
    """Whether there are several images, and no samples or labels to begin with, which come for all of them."""
    begins = getattr(decoder, "start", "")
    return problem.potentials.n_images > 1 and not hasattr(decoder, "n_samples") and isinstance(begins, str)


def _part(problem: Problem, images: slice) -> Problem:
    first = problem.first_image + images.start
    return replace(problem, potentials=problem.potentials.part(images), first_image=first)


def _joined(outcomes: list[Outcome]) -> Outcome:
    first = outcomes[0]
    climbs = [outcome.climbs for outcome in outcomes if outcome.climbs is not None]
    return Outcome(
        labels=_stacked([outcome.labels for outcome in outcomes]),
        probability=_stacked([outcome.probability for outcome in outcomes]),
        n_sweeps=max(outcome.n_sweeps for outcome in outcomes),
        climbs=Climbs([part for climb in climbs for part in climb.sweeps], climbs[0].max_sweeps) if climbs else None,
        log_partition=_stacked([outcome.log_partition for outcome in outcomes]),
        log_partition_kind=first.log_partition_kind,
    )


def _stacked(parts: list[Any]) -> Any:
    return None if parts[0] is None else namespace(parts[0]).concatenate(parts)


def _worse(one: Status, other: Status) -> Status:
    return other if one in ENDED_WELL else one
