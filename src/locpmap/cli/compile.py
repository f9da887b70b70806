"""``locpmap compile``: compile the most used kernels before they are needed."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import typer

from locpmap.cli.progress import ProgressBar


def compile() -> None:
    """Compile the kernels of refining, measuring, deciding and LocPMAP.

    Otherwise the first call of each compiles its kernels, for 10 to 30 seconds.  Compiled kernels are cached on disk,
    once per machine and user; those of other decoders are compiled when first used.
    """
    began, jobs = time.monotonic(), _jobs()
    with ProgressBar("compiling") as bar:
        for done, job in enumerate(jobs):
            bar.update(done, len(jobs))
            job()
    typer.echo(f"the kernels are compiled ({time.monotonic() - began:.0f} s)")


def _jobs() -> list[Callable[[], Any]]:
    """Return calls on small arrays that compile the kernels for arrays of any size."""
    import numpy as np

    import locpmap as lp

    image = np.zeros((16, 16, 3), np.uint8)
    logits = np.random.default_rng(0).normal(size=(16, 16, 3)).astype(np.float32)

    def refine() -> None:
        result = lp.refine(image, logits, decoder=lp.LocPMAP(4, start="perturbed", keep_samples=True))
        result.decide("iou")
        lp.Refiner.load().measure(image, logits, "area")

    def infer(n_labels: int, dtype: Any) -> None:
        potentials = lp.Potentials.grid(logits[..., :n_labels].astype(dtype), 1.0)
        for probability in ("conditional", "votes"):
            lp.infer(potentials, lp.LocPMAP(4, probability=probability))

    return [refine, *(partial(infer, n, dtype) for dtype in (np.float32, np.float64) for n in (3, 2))]
