"""What a GPU has no memory for: one half after the other, with the same answers.

Images of a batch, samples of a round and sites of a count know nothing of one another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from locpmap.arrays import Array, Restore, namespace
from locpmap.inference.decoder import Climbs, Decoder, Outcome, Problem, Progress, drive
from locpmap.kernels.reference.scores import total_scores
from locpmap.result import Status

ENDED_WELL = (Status.CONVERGED, Status.COMPLETE)
Part = TypeVar("Part")
Answer = TypeVar("Answer")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch found no memory on its device; by the error's name, for torch may not be there."""
    return type(error).__name__ == "OutOfMemoryError"


def in_parts(work: Callable[[Part], Answer], whole: Part, halves: Callable[[Part], list[Part]]) -> Iterator[Answer]:
    """Yield the answer of the whole or, where a device has no memory for it, those of its halves, in order.

    ``halves`` returns nothing for a part that cannot be split; then the error stands.
    """
    try:
        answer = work(whole)
    except RuntimeError as error:
        parts = halves(whole) if is_out_of_memory(error) else []
        if not parts:
            raise
    else:
        yield answer
        return
    for part in parts:  # out of the handler, which keeps what the failed attempt held
        yield from in_parts(work, part, halves)


def drive_in_memory(
    decoder: Decoder, problem: Problem, max_seconds: float | None, progress: Progress | None
) -> tuple[Outcome, Status]:
    """As :func:`drive`, on as many images at a time as there is memory for; ``progress`` begins anew with each part."""
    began, to_do = time.perf_counter(), problem.potentials.n_images
    outcomes: list[Outcome] = []
    status: Status | None = None

    def work(part: Problem) -> tuple[Outcome, Status]:
        left = max_seconds
        if left is not None and part is not problem:  # a share of the time that is left, by images
            left = max(0.0, left - (time.perf_counter() - began)) * part.potentials.n_images / to_do
        return drive(decoder, part, left, progress)

    def halves(part: Problem) -> list[Problem]:
        n_images = part.potentials.n_images
        if n_images == 1 or not decoder.separable(timed=max_seconds is not None):
            return []
        return [_part(part, slice(0, n_images // 2)), _part(part, slice(n_images // 2, n_images))]

    for outcome, ending in in_parts(work, problem, halves):
        outcomes.append(outcome)
        to_do -= len(outcome.labels)
        status = ending if status is None else _worse(status, ending)
    assert status is not None
    return (outcomes[0] if len(outcomes) == 1 else _joined(outcomes)), status


def is_forbidden(problem: Problem, labels: Array) -> bool:
    """Whether the labels (N, S) of some image have pairs that a table forbids; found on the host if need be."""
    try:
        return bool((problem.kernels.score(problem.view, labels) == -np.inf).any())
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return bool(np.isneginf(total_scores(problem.potentials.to(None).model, Restore()(labels))).any())


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
