"""``locpmap compile``: compile the most used kernels before they are needed."""

import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context

import typer

from locpmap.errors import BackendError

JOBS = ("refine", "infer 3 float32", "infer 3 float64", "infer 2 float32", "infer 2 float64")


def compile() -> None:
    """Compile the kernels of refining, measuring, deciding and LocPMAP, on all cores.

    Otherwise the first call of each compiles its kernels, for 10 to 30 seconds.  Compiled kernels are cached on disk,
    once per machine and user; those of other decoders are compiled when first used.
    """
    from locpmap.cli.doctor import numba_cache
    from locpmap.cli.progress import ProgressBar
    from locpmap.kernels.threads import available_threads

    if not (cache := numba_cache())["writable"]:
        raise BackendError(f"{cache['folder']} cannot be written, expected NUMBA_CACHE_DIR with a folder that can")
    began = time.monotonic()
    with ProgressBar("compiling") as bar:
        pool = ProcessPoolExecutor(min(len(JOBS), available_threads()), get_context("spawn"))
        try:
            for done, job in enumerate(as_completed([pool.submit(run, job) for job in JOBS])):
                job.result()
                bar.update(done + 1, len(JOBS))
        except BrokenProcessPool:
            raise BackendError("a process that compiles was ended, expected enough memory for one per core") from None
        finally:
            for process in active_children():  # they may be in the middle of a job if the command is interrupted
                process.terminate()
            pool.shutdown(cancel_futures=True)
    typer.echo(f"the kernels are compiled ({time.monotonic() - began:.0f} s)")


def run(job: str) -> None:
    """Run calls on small arrays, which compile the kernels for arrays of any size."""
    import numpy as np

    import locpmap as lp
    from locpmap.kernels.compile_progress import progress

    progress.show = lambda _: None  # the command has its own bar
    image = np.zeros((16, 16, 3), np.uint8)
    logits = np.random.default_rng(0).normal(size=(16, 16, 3)).astype(np.float32)
    if job == "refine":
        lp.refine(image, logits).decide("iou")
        lp.Refiner.load().measure(image, logits, "area")
        return
    _, n_labels, dtype = job.split()
    potentials = lp.Potentials.grid(logits[..., : int(n_labels)].astype(dtype), 1.0)
    for probability in ("conditional", "votes"):
        lp.infer(potentials, lp.LocPMAP(4, probability=probability))
