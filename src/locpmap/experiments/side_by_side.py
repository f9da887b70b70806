"""Cases of a run side by side: one process for each level and seed, all of which keep their stages in one folder."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from locpmap.experiments.progress import RunProgress
from locpmap.kernels.threads import available_threads

Make = Callable[[dict[str, Any], str, int], None]  # of the run's arguments, a level and a seed


def make_cases(
    make: Make, arguments: dict[str, Any], cases: Sequence[tuple[str, int]], jobs: int, progress: RunProgress
) -> None:
    """Make the stages of all cases, so many at a time; a case has the numbers that it has in one process.

    A GPU is shared by all of them, and so are the cores.
    """
    # Forked processes would share a GPU's context with their parent, which does not work.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(cases)), context, _take_share, (jobs,)) as pool:
        title = f"{len(cases)} cases, {min(jobs, len(cases))} at a time"
        progress.stage(0, len(cases), title)
        futures = [pool.submit(make, arguments, level, seed) for level, seed in cases]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                progress.stage(done, len(cases), title)
        finally:  # after an error nobody waits for cases that have not begun
            pool.shutdown(cancel_futures=True)


def _take_share(jobs: int) -> None:
    import torch

    torch.set_num_threads(max(1, available_threads() // jobs))
