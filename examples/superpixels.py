"""Label the superpixels of a photograph from a few boxes: a CRF on a region adjacency graph.

Conclusion first: a graph helps if its weights are learned for the way they are used.  In 21 boxes that were held out,
logistic regression without edges gets 76 % of the pixels right.  Pseudolikelihood gets 41 %: marked neighbours nearly
always agree (96 %), so it learns to trust them and shrinks all other weights to a tenth; but where it is used, most
neighbours are not known.  Consistent learning goes on from there with LocPMAP's own samples as neighbours and gets
85 %, and 91 % where the marks are kept as known labels (85 to 90 % and 91 to 97 % with seeds 0 to 2).  Boxes of one
photograph prove little, and these were drawn while looking at results: a demonstration, not a benchmark.  The gain of
15 points over no edges has a standard error of 8.5.  The probabilities gain more surely: the negative log-likelihood
falls from 0.86 to 0.22, by 0.65 ± 0.28.  And the variance is large where the labels are wrong: at the collar, of which
nothing was marked, the helmet's rim, and along the edges of flag and shuttle.

Run it with ``python examples/superpixels.py``; the photograph (NASA, public domain) comes with scikit-image, so it
needs no network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from skimage.color import rgb2lab
from skimage.data import astronaut
from skimage.segmentation import find_boundaries, slic

import locpmap as lp

COLOURS = {
    "wall": "#bab0ac",
    "flag": "#4e79a7",
    "head": "#edc948",
    "suit": "#f28e2b",
    "shuttle": "#59a14f",
    "helmet, table": "#b07aa1",
}
NAMES = list(COLOURS)
VOID = -1

# What a person would mark: label, then first and last row, first and last column.  Many meet at a border of two things:
# boxes in the midst of things would teach that neighbours always agree.
MARKED = [
    ("wall", 5, 60, 70, 150),
    ("wall", 60, 120, 302, 345),
    ("wall", 120, 175, 95, 165),
    ("wall", 100, 190, 345, 376),
    ("wall", 15, 60, 350, 394),
    ("wall", 220, 274, 458, 511),
    ("flag", 0, 60, 0, 40),
    ("flag", 60, 110, 0, 50),
    ("flag", 120, 200, 40, 85),
    ("flag", 190, 240, 0, 60),
    ("flag", 300, 400, 0, 20),
    ("head", 90, 150, 190, 260),
    ("head", 20, 60, 190, 260),
    ("head", 60, 120, 265, 300),
    ("suit", 315, 400, 32, 110),
    ("suit", 330, 400, 230, 275),
    ("suit", 420, 480, 150, 230),
    ("suit", 270, 320, 290, 340),
    ("shuttle", 100, 220, 379, 402),
    ("shuttle", 15, 90, 397, 432),
    ("helmet, table", 292, 340, 385, 455),
    ("helmet, table", 277, 340, 458, 511),
    ("helmet, table", 400, 440, 300, 340),
    ("helmet, table", 470, 511, 330, 450),
]
# Where the answers are judged: plain places, and such as colour alone misjudges.
HELD_OUT = [
    ("wall", 5, 60, 310, 345),
    ("wall", 120, 200, 470, 511),
    ("wall", 150, 200, 305, 340),
    ("wall", 65, 115, 85, 145),
    ("flag", 265, 295, 0, 30),
    ("flag", 110, 140, 0, 25),
    ("flag", 420, 480, 0, 20),
    ("head", 60, 110, 160, 185),
    ("head", 160, 175, 205, 250),
    ("head", 62, 88, 195, 255),
    ("suit", 355, 420, 145, 205),  # the round emblem
    ("suit", 345, 370, 285, 320),  # the name tag
    ("suit", 440, 460, 242, 256),  # the white clasp
    ("suit", 430, 470, 50, 110),
    ("shuttle", 60, 120, 438, 452),  # the grey booster
    ("shuttle", 195, 220, 360, 378),  # the wing
    ("shuttle", 130, 170, 405, 420),  # the black belly
    ("helmet, table", 428, 457, 347, 370),  # a reflection
    ("helmet, table", 430, 468, 415, 450),  # another
    ("helmet, table", 365, 385, 455, 470),  # the white rim
    ("helmet, table", 380, 420, 370, 420),
]


@dataclass(frozen=True)
class Regions:
    """The superpixels of an image, what is known of each, and which touch."""

    of_pixel: np.ndarray  # (H, W) the number of each pixel's superpixel
    unary: np.ndarray  # (S, 6) mean colour, how much it varies, row and column; all standardised
    edges: np.ndarray  # (E, 2) superpixels that touch
    pairwise: np.ndarray  # (E, 3) constant, likeness of the colours, length of the common boundary

    def features(self, connected: bool) -> lp.Features:
        """On the graph, or on its sites by themselves."""
        unary_names = ("lightness", "green-red", "blue-yellow", "texture", "row", "column")
        if not connected:
            return lp.Features.graph(self.unary, self.edges[:0], unary_names=unary_names)
        names = ("constant", "contrast", "boundary")
        return lp.Features.graph(self.unary, self.edges, self.pairwise, unary_names=unary_names, pairwise_names=names)


@dataclass(frozen=True)
class Row:
    """One line of the table: what a model says of every superpixel."""

    name: str
    labels: np.ndarray  # (S,)
    probability: np.ndarray  # (S, labels)


def main(
    superpixels: Annotated[int, typer.Option(min=50, help="How many superpixels to ask for.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of LocPMAP's noise.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out"),
) -> list[Row]:
    """Learn from marked boxes, judge on others; prints a table and writes a picture."""
    image = photograph()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("superpixels", total=None)
        found = regions(image, superpixels)
        marks = marked(MARKED, found.of_pixel)
        rows = []
        for row in learn_and_decode(found, marks, seed):
            bar.update(task, description=f"after: {row.name}")
            rows.append(row)
    Console(width=None if sys.stdout.isatty() else 110).print(table(rows, found, marks))
    print(f"Picture: {draw(rows, image, found, marks, out / 'superpixels.png')}")
    return rows


def photograph() -> np.ndarray:
    """Eileen Collins, (512, 512, 3) uint8."""
    return np.asarray(astronaut())


def regions(image: np.ndarray, count: int) -> Regions:
    """Superpixels by SLIC; O(pixels)."""
    of_pixel = slic(image, n_segments=count, compactness=10, start_label=0, channel_axis=-1)
    lab, flat = rgb2lab(image), of_pixel.ravel()
    size = np.bincount(flat)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(flat, values.ravel()) / size

    colour = np.stack([mean(lab[..., c]) for c in range(3)], axis=1)
    texture = np.sqrt(sum(mean((lab[..., c] - colour[of_pixel, c]) ** 2) for c in range(3)))
    rows, columns = np.indices(of_pixel.shape)
    unary = np.column_stack([colour, texture, mean(rows), mean(columns)])
    edges, boundary = touching(of_pixel)
    apart = ((colour[edges[:, 0]] - colour[edges[:, 1]]) ** 2).sum(axis=1)
    contrast = np.exp(-apart / (2 * apart.mean()))
    pairwise = np.column_stack([np.ones(len(edges)), contrast, boundary / boundary.mean()])
    return Regions(of_pixel, (unary - unary.mean(axis=0)) / unary.std(axis=0), edges, pairwise)


def touching(of_pixel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of superpixels (E, 2) that share a boundary, and how many pairs of pixels it is long (E,)."""
    sides = ((of_pixel[:, :-1], of_pixel[:, 1:]), (of_pixel[:-1], of_pixel[1:]))
    pairs = np.concatenate([np.stack([a[a != b], b[a != b]], axis=1) for a, b in sides])
    edges, length = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)
    return edges, length


def marked(boxes: list[tuple[str, int, int, int, int]], of_pixel: np.ndarray) -> np.ndarray:
    """(S,) labels of superpixels that lie in a box by more than half, VOID for all others."""
    size = np.bincount(of_pixel.ravel())
    labels = np.full(len(size), VOID)
    for name, top, bottom, left, right in boxes:
        inside = np.bincount(of_pixel[top:bottom, left:right].ravel(), minlength=len(size))
        labels[2 * inside > size] = NAMES.index(name)
    return labels


def learn_and_decode(found: Regions, marks: np.ndarray, seed: int) -> Iterator[Row]:
    """No edges, then the graph by pseudolikelihood and consistently; the latter two also with the marks kept."""
    options: dict[str, Any] = {"seed": seed}
    for name, connected, objective in (
        ("no edges", False, "pseudolikelihood"),
        ("pseudolikelihood", True, "pseudolikelihood"),
        ("consistent", True, "consistent"),
    ):
        features = found.features(connected)
        # One weight per pairwise feature: the few borders between marks cannot fill a table of 36.
        crf = lp.CRF(len(NAMES), features=None, potts=True, non_negative=True, label_names=NAMES, ignore_label=VOID)
        crf.fit(features, marks, objective, seed=seed, options=lp.learning.FitOptions(standard_errors=False))
        yield row(name, crf.infer(features, "locpmap", **options))
        if connected:
            weights = found.pairwise @ crf.tables[0, :, 0, 0]
            unary = keeping(marks, crf.potentials(features).unary[0])
            kept = lp.Potentials.graph(unary, found.edges, weights)
            yield row(f"{name}, marks kept", lp.infer(kept, "locpmap", **options))


def row(name: str, result: lp.Result) -> Row:
    """What the table and the picture need of a result."""
    return Row(name, np.asarray(result.labels), np.asarray(result.probability))


def keeping(marks: np.ndarray, unary: np.ndarray) -> np.ndarray:
    """Scores (S, labels) that forbid, where there is a mark, every other label."""
    other = (marks[:, None] != VOID) & (marks[:, None] != np.arange(unary.shape[1]))
    return np.where(other, -np.inf, unary)


def table(rows: list[Row], found: Regions, marks: np.ndarray) -> Table:
    """Accuracy and negative log-likelihood in the held-out boxes, and what the graph adds."""
    boxes = held_out_boxes(found, marks)
    title = f"{len(marks)} superpixels, {(marks != VOID).sum()} marked, judged in {len(boxes)} held-out boxes"
    caption = (
        "accuracy: share of a box's pixels with its label, mean over boxes ± one standard error.  NLL: negative"
        " log-likelihood of that label per pixel, lower is better.  gain: over no edges, with the standard error of the"
        " paired difference."
    )
    report = Table(title=title, caption=caption, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("learned by", "accuracy", "gain", "NLL", "gain"):
        report.add_column(heading, justify="left" if heading == "learned by" else "right", no_wrap=True)
    for row in rows:
        cells = []
        for measure, sign in ((accuracy, 1), (surprise, -1)):
            values = measure(row, boxes)
            gain = sign * (values - measure(rows[0], boxes))
            cells += [plus_minus(values), "-" if row is rows[0] else plus_minus(gain, "+")]
        report.add_row(row.name, *cells)
    return report


def plus_minus(values: np.ndarray, sign: str = "") -> str:
    """Mean and standard error."""
    return f"{values.mean():{sign}.3f} ± {standard_error(values):.3f}"


def standard_error(values: np.ndarray) -> float:
    """Of the mean over boxes."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def held_out_boxes(found: Regions, marks: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The label of each box, and the superpixels of its pixels, without those that are marked."""
    boxes = []
    for name, top, bottom, left, right in HELD_OUT:
        sites = found.of_pixel[top:bottom, left:right].ravel()
        boxes.append((NAMES.index(name), sites[marks[sites] == VOID]))
    return [(label, sites) for label, sites in boxes if len(sites)]


def accuracy(row: Row, boxes: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """The share of right pixels in each box."""
    return np.array([(row.labels[sites] == label).mean() for label, sites in boxes])


def surprise(row: Row, boxes: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Negative log-likelihood per pixel (probabilities clipped at 0.001) in each box."""
    return np.array([-np.log(row.probability[sites, label].clip(1e-3)).mean() for label, sites in boxes])


def draw(rows: list[Row], image: np.ndarray, found: Regions, marks: np.ndarray, path: Path) -> Path:
    """The photograph, the marks, the labels of four models, and the probability and variance of the last."""
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch, Rectangle

    figure, axes = pyplot.subplots(2, 4, figsize=(17, 9.4), layout="constrained")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    palette = np.array([matplotlib.colors.to_rgb(colour) for colour in COLOURS.values()])
    lines = find_boundaries(found.of_pixel)
    axes[0, 0].imshow(np.where(lines[..., None], (255, 255, 0), image).astype(np.uint8))
    axes[0, 0].set_title(f"{len(marks)} superpixels")
    axes[0, 1].imshow(image)
    at = marks[found.of_pixel]
    axes[0, 1].imshow(np.dstack([palette[at], np.where(at == VOID, 0.0, 0.8)]))
    for name, top, bottom, left, right in HELD_OUT:
        box = (left, top), right - left, bottom - top
        axes[0, 1].add_patch(Rectangle(*box, fill=False, edgecolor=COLOURS[name], linestyle="--", linewidth=2))
    axes[0, 1].set_title("marked superpixels; held-out boxes dashed")
    boxes = held_out_boxes(found, marks)
    shown = {row.name: row for row in rows}
    grey = image.mean(axis=-1, keepdims=True) / 255
    for axis, name in zip(
        axes.flat[2:6], ("no edges", "pseudolikelihood", "consistent", "consistent, marks kept"), strict=True
    ):
        right_share = accuracy(shown[name], boxes).mean()
        axis.imshow(0.75 * palette[shown[name].labels[found.of_pixel]] + 0.25 * grey)
        axis.set_title(f"{name}: {right_share:.0%} of held-out pixels right", fontsize=11)
    sure = rows[-1].probability.max(axis=1)
    for axis, values, colours, low, high, name in (
        (axes[1, 2], sure, "Blues", 1 / len(NAMES), 1, "probability of the label"),
        (axes[1, 3], sure * (1 - sure), "Reds", 0, 0.25, "variance p(1 - p)"),
    ):
        picture = axis.imshow(values[found.of_pixel], colours, vmin=low, vmax=high)
        axis.set_title(f"{name}, {rows[-1].name}", fontsize=11)
        figure.colorbar(picture, ax=axis, orientation="horizontal", shrink=0.7, pad=0.02)
    patches = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=patches, loc="outside lower left", ncols=len(patches), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    typer.run(main)
