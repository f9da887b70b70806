"""Compare `locpmap.compat.densecrf` and `lp.refine` with pydensecrf2: `python -m benchmarks.coming_from_pydensecrf`.

`speed` times synthetic scenes and the examples of pydensecrf's repository. `agreement` compares labels, on these
examples and on photographs of the Stanford Background data. Both write results/pydensecrf.json, and `page` writes its
tables into docs/pydensecrf.md.
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.progress import track

import locpmap as lp
import locpmap.compat.densecrf as ours
from benchmarks import machine
from benchmarks.tasks import Task, make_task
from locpmap.compat.utils import unary_from_labels, unary_from_softmax

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/pydensecrf.json", ROOT / "docs/pydensecrf.md"
PICTURE = ROOT / "docs/figures/pydensecrf.png"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ROUNDS, SWEEPS = 9, 5
STRIDE = 8  # stride of coarse logits
REPLACED = 0.3  # fraction of the photographs' labels that are replaced by random ones

Array = np.ndarray[Any, np.dtype[Any]]
app = typer.Typer(add_completion=False)


class Kernels(NamedTuple):
    """Kernel parameters of pydensecrf."""

    sxy: float
    compat: float
    colour_sxy: float
    srgb: float
    colour_compat: float


README = "of its README"
SETTINGS = {README: Kernels(3, 3, 80, 13, 10), "smaller": Kernels(1, 3, 30, 10, 5)}


def dense(library: Any, energies: Array, image: Array, how: Kernels) -> Array:
    """Return probabilities (K, n_pixels) by the code that a user writes, with either library."""
    height, width = image.shape[:2]
    crf = library.DenseCRF2D(width, height, len(energies))
    crf.setUnaryEnergy(energies)
    crf.addPairwiseGaussian(sxy=how.sxy, compat=how.compat)
    crf.addPairwiseBilateral(sxy=how.colour_sxy, srgb=how.srgb, rgbim=image, compat=how.colour_compat)
    return np.array(crf.inference(SWEEPS))


def softmax(logits: Array) -> Array:
    """Return the softmax over the last axis."""
    parts = np.exp(logits - logits.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def energies_of(logits: Array) -> Array:
    """Return the unary energies (K, n_pixels) of logits (H, W, K)."""
    return unary_from_softmax(np.ascontiguousarray(np.moveaxis(softmax(logits), -1, 0)))


# Time, and the figure


def timed(name: str, image: Array, energies: Array, theirs: Any, task: Task | None = None) -> dict[str, Any]:
    """Time each system in rounds, one run of every system per round; return seconds, agreement and accuracy."""
    shape = image.shape[:2]
    systems: dict[str, Callable[[], Array]] = {
        "pydensecrf2": lambda: labels_of(theirs, image, energies),
        "locpmap.compat.densecrf": lambda: labels_of(ours, image, energies),
    }
    if task is not None:
        systems["lp.refine"] = lambda: lp.refine(image, task.unary).labels
    labels = {system: run() for system, run in systems.items()}  # compiles
    clocks: dict[str, list[tuple[float, float]]] = {system: [] for system in systems}
    for _, (system, run) in track(list(itertools.product(range(ROUNDS), systems.items())), description=name):
        began, used = time.perf_counter(), time.process_time()
        run()
        clocks[system].append((time.perf_counter() - began, time.process_time() - used))
    found: dict[str, Any] = {"size": [*shape, len(energies)]}
    base = clocks["pydensecrf2"]
    found["systems"] = {
        system: {
            "seconds": statistics.median(seconds for seconds, _ in clocks[system]),
            "cpu_seconds": statistics.median(used for _, used in clocks[system]),
            "ratio": statistics.median(one / other for (one, _), (other, _) in zip(clocks[system], base, strict=True)),
            "agreement": float((labels[system] == labels["pydensecrf2"]).mean()),
            "accuracy": None if task is None else task.accuracy(labels[system]),
        }
        for system in systems
    }
    return found


def labels_of(library: Any, image: Array, energies: Array, setting: str = README) -> Array:
    """Return the most probable labels (H, W)."""
    return dense(library, energies, image, SETTINGS[setting]).argmax(0).reshape(image.shape[:2])


def examples_of(folder: Path) -> Iterator[tuple[str, Array, Array]]:
    """Yield name, image and energies of pydensecrf's examples, as its inference.py reads them."""
    from PIL import Image

    for annotation in sorted(folder.glob("anno*.png")):
        name = annotation.stem.removeprefix("anno")
        colours = np.array(Image.open(annotation).convert("RGB")).astype(np.int64) @ [1, 2**8, 2**16]
        known, labels = np.unique(colours, return_inverse=True)
        unsure = bool(known[0] == 0)
        energies = unary_from_labels(labels, len(known) - unsure, 0.7, zero_unsure=unsure)
        yield f"example {name}", np.array(Image.open(folder / f"im{name[0]}.png").convert("RGB")), energies


def draw(task: Task, theirs: Any) -> None:
    """Draw a synthetic image, the network's labels, and the labels of all systems."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from locpmap.formats.pictures import label_colours

    energies, image = energies_of(task.unary), np.array(task.image)
    refined = lp.refine(image, task.unary)
    maps = {
        "the network's labels": task.unary.argmax(-1),
        "pydensecrf2": labels_of(theirs, image, energies),
        "locpmap.compat.densecrf": labels_of(ours, image, energies),
        "lp.refine: labels": refined.labels,
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(10.5, 5.6), layout="constrained")
    colours = label_colours(task.n_labels)
    panels = [("synthetic image", image), *((name, colours[labels]) for name, labels in maps.items())]
    for axis, (name, pixels) in zip(axes.flat, panels, strict=False):
        axis.imshow(pixels)
        axis.set_title(name, fontsize=10)
    shown = axes.flat[5].imshow(refined.entropy, cmap="magma", vmin=0)
    axes.flat[5].set_title("lp.refine: entropy", fontsize=10)
    figure.colorbar(shown, ax=axes.flat[5], fraction=0.04)
    for axis in axes.flat:
        axis.set_axis_off()
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


# Agreement of labels


def photographs(data: Path | None, n_test: int, seed: int, kind: str) -> Iterator[tuple[str, Array, Array]]:
    """Yield name, image and energies of photographs, with sharp or coarse logits."""
    from locpmap_paper.data import scenes

    known = scenes(data)
    for index in np.random.default_rng(seed).permutation(len(known))[:n_test].tolist():
        name, image, truth = known[index]
        logits = noisy(truth, np.random.default_rng([seed, index]))
        yield str(name), np.array(image), energies_of(coarse(logits) if kind == "coarse" else logits)


def compared(cases: list[tuple[str, Array, Array]], setting: str, theirs: Any) -> dict[str, Any]:
    """Return the agreement of labels and the mean numbers of components, of pydensecrf and of the library."""
    agreement, components = [], []
    for _, image, energies in track(cases, description=setting):
        one, other = (labels_of(library, image, energies, setting) for library in (theirs, ours))
        agreement.append(float((one == other).mean()))
        components.append([n_components(one), n_components(other)])
    means = np.mean(components, axis=0).tolist()
    return {"agreement": statistics.mean(agreement), "least": min(agreement), "components": means}


def noisy(truth: Array, rng: np.random.Generator) -> Array:
    """Return logits (H, W, 8) that favour the true label, or a random one at some pixels and where it is unknown."""
    replaced = (rng.random(truth.shape) < REPLACED) | (truth < 0)
    return 2 * np.eye(8, dtype=np.float32)[np.where(replaced, rng.integers(0, 8, truth.shape), truth)]


def coarse(logits: Array) -> Array:
    """Return logits as a network of stride ``STRIDE`` predicts them: means over squares, enlarged."""
    import torch
    import torch.nn.functional as F

    height, width = logits.shape[:2]
    batch = torch.from_numpy(logits).movedim(-1, 0)[None]
    small = F.adaptive_avg_pool2d(batch, (-(-height // STRIDE), -(-width // STRIDE)))
    return F.interpolate(small, size=(height, width), mode="bilinear", align_corners=False)[0].movedim(0, -1).numpy()


def n_components(labels: Array) -> int:
    """Return the number of connected components of equal labels."""
    from scipy import ndimage

    return sum(ndimage.label(labels == label)[1] for label in np.unique(labels))


# Record and page


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(record: dict[str, Any]) -> str:
    """Return the part of the page that comes from a record."""
    rows = []
    for name, case in record["timed"].items():
        height, width, n_labels = case["size"]
        rows += [
            [
                f"{name}, {height}×{width}, {n_labels} labels" if k == 0 else "",
                *(system, f"{row['seconds']:.2f}", f"{row['ratio']:.2f}", f"{row['cpu_seconds']:.2f}"),
                *(f"{row['agreement']:.4f}", "" if row["accuracy"] is None else f"{row['accuracy']:.4f}"),
            ]
            for k, (system, row) in enumerate(case["systems"].items())
        ]
    where = record["provenance"]["machine"]
    parts = [
        f"Medians of {ROUNDS} rounds with the kernels of pydensecrf's README and {SWEEPS} updates, on {where['cores']}"
        f" cores ({where['cpu']}, load {where['load']} at the start); ratios are more reliable than seconds. Agreement"
        f" is the fraction of pixels with pydensecrf2's label. Recorded by `{record['provenance']['command']}`.",
        table(["image", "system", "seconds", "÷ pydensecrf2", "cpu s", "agreement", "accuracy"], rows),
    ]
    rows = [
        [
            *(build, row["images"], row["setting"], f"{row['agreement']:.4f}", f"{row['least']:.4f}"),
            *(f"{count:.0f}" for count in row["components"]),
        ]
        for build, found in record["agreement"].items()
        for row in found["rows"]
    ]
    heads = ["pydensecrf", "images", "kernels", "agreement", "least", "components, theirs", "components, compat"]
    n_photographs = " and ".join(dict.fromkeys(str(found["n_photographs"]) for found in record["agreement"].values()))
    parts += [
        f"Agreement on the examples of pydensecrf's repository, and on {n_photographs} photographs of the Stanford"
        f" Background data. Logits of photographs are made from their labels, {100 * REPLACED:.0f} % of them replaced"
        f" at random; coarse ones have stride {STRIDE} and are enlarged. Components are connected pixels of one label."
        f" Settings of the kernels: {kernels_in_words()}.",
        table(heads, rows),
    ]
    return "\n\n".join(parts)


def kernels_in_words() -> str:
    """Return the parameters of the two settings as text."""
    return "; ".join(
        f"{name}: sxy {how.sxy:g}, compat {how.compat:g}, and sxy {how.colour_sxy:g}, srgb {how.srgb:g}, compat"
        f" {how.colour_compat:g}"
        for name, how in SETTINGS.items()
    )


Examples = Annotated[Path, typer.Option(help="Folder examples of pydensecrf's repository.")]
Seed = Annotated[int, typer.Option(help="Seed of the synthetic scenes and of the logits of photographs.")]


@app.command()
def speed(examples: Examples, seed: Seed = 0) -> None:
    """Measure times and draw, and write the record and the page."""
    import pydensecrf.densecrf as theirs

    here, found = machine.machine(), json.loads(RECORD.read_text())
    found["provenance"] = machine.provenance("benchmarks.coming_from_pydensecrf", seed, here)
    found["timed"] = {name: timed(name, image, energies, theirs) for name, image, energies in examples_of(examples)}
    for name in ("T2-hard", "T3-hard"):
        task = make_task(name, seed)
        found["timed"][name] = timed(name, np.array(task.image), energies_of(task.unary), theirs, task)
    draw(make_task("T2-hard", seed), theirs)
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    page()


@app.command()
def agreement(
    build: Annotated[str, typer.Argument(help="Name of the installed build of pydensecrf.")],
    examples: Examples,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets that contain the photographs.")] = None,
    n_photographs: Annotated[int, typer.Option(help="Number of photographs.")] = 16,
    seed: Seed = 0,
) -> None:
    """Compare labels with those of a build of pydensecrf, and write the record and the page."""
    import pydensecrf.densecrf as theirs

    found = json.loads(RECORD.read_text())
    rows = [{"images": "its examples", "setting": README, **compared(list(examples_of(examples)), README, theirs)}]
    for kind in ("sharp", "coarse"):
        cases = list(photographs(data, n_photographs, seed, kind))
        rows += [{"images": kind, "setting": name, **compared(cases, name, theirs)} for name in SETTINGS]
    about = machine.provenance("benchmarks.coming_from_pydensecrf", seed, machine.machine())
    found.setdefault("agreement", {})[build] = {"provenance": about, "n_photographs": n_photographs, "rows": rows}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    page()


@app.command()
def page() -> None:
    """Write the tables of the record into docs/pydensecrf.md, between the markers."""
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{measured(json.loads(RECORD.read_text()))}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    app()
