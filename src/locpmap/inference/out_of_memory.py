"""Retries after running out of GPU memory: split the work in halves, with identical results.

Images of a batch, samples of a round and sites of a count are independent, so each can be split.
"""

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
ARRAYS = ("labels", "probability", "log_partition", "log_partition_error", "bound", "samples", "r_hat", "n_effective")
Part = TypeVar("Part")
Answer = TypeVar("Answer")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether torch ran out of memory, judged by the error's name, since torch may be missing."""
    return type(error).__name__ == "OutOfMemoryError"


def in_parts(work: Callable[[Part], Answer], whole: Part, halves: Callable[[Part], list[Part]]) -> Iterator[Answer]:
    """Yield the answer for the whole or, if memory runs out, for its ``halves`` in order; raise if it has none."""
    try:
        answer = work(whole)
    except RuntimeError as error:
        parts = halves(whole) if is_out_of_memory(error) else []
        if not parts:
            raise
    else:
        yield answer
        return
    for part in parts:  # outside the handler, which would retain the memory of the failed attempt
        yield from in_parts(work, part, halves)


def drive_in_memory(
    decoder: Decoder, problem: Problem, max_seconds: float | None, progress: Progress | None
) -> tuple[Outcome, Status]:
    """Run :func:`drive` on as many images at a time as fit into memory.  ``progress`` restarts with each part."""
    began, to_do = time.perf_counter(), problem.potentials.n_images
    outcomes: list[Outcome] = []
    status: Status | None = None

    def work(part: Problem) -> tuple[Outcome, Status]:
        left = max_seconds
        if left is not None and part is not problem:  # the remaining time, in proportion to the images
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
        if status is None or status in ENDED_WELL or ending is Status.MAX_SECONDS:
            status = ending
    assert status is not None
    return (outcomes[0] if len(outcomes) == 1 else _joined(outcomes)), status


def is_forbidden(problem: Problem, labels: Array) -> bool:
    """Return whether labels (N, S) contain a forbidden pair, using the host if the device lacks memory."""
    try:
        return bool((problem.kernels.score(problem.view, labels) == -np.inf).any())
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return bool(np.isneginf(total_scores(problem.potentials.to(None).model, Restore()(labels))).any())


def _part(problem: Problem, images: slice) -> Problem:
    whole, first = problem.potentials, problem.first_image + images.start
    part = whole.part(images)
    pairwise = replace(part.pairwise, whole_least=whole.pairwise.least_weight)  # determines the noise scheme
    return replace(problem, potentials=replace(part, pairwise=pairwise), first_image=first)


def _joined(outcomes: list[Outcome]) -> Outcome:
    joined: dict[str, Any] = {"n_sweeps": max(outcome.n_sweeps for outcome in outcomes)}
    for name in ARRAYS:
        parts = [getattr(outcome, name) for outcome in outcomes]
        if parts[0] is not None:
            joined[name] = namespace(parts[0]).concatenate(parts, axis=1 if name == "samples" else 0)
    climbs = [outcome.climbs for outcome in outcomes if outcome.climbs is not None]
    if climbs:
        joined["climbs"] = Climbs([part for climb in climbs for part in climb.sweeps], climbs[0].max_sweeps)
    return replace(outcomes[0], **joined)
