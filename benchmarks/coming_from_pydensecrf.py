"""Compare `locpmap.compat.densecrf` and `lp.refine` with pydensecrf2: `python -m benchmarks.coming_from_pydensecrf`.

Synthetic scenes are timed and drawn. If a folder with logits of the Stanford Background photographs is given, the
agreement of labels is measured: on photographs from which the constants of the translation are chosen, and on others.
`record` writes results/pydensecrf.json, and `page` writes its tables into docs/pydensecrf.md.
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
from locpmap.compat import kernels
from locpmap.compat.utils import unary_from_softmax

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/pydensecrf.json", ROOT / "docs/pydensecrf.md"
PICTURE = ROOT / "docs/figures/pydensecrf.png"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ROUNDS, SWEEPS = 5, 5
STRIDE = 8  # stride of coarse logits
STEPS, NEARNESS = (12, 16, 24), (1.0, 1.5, 2.0, 3.0)  # candidates for the constants of the translation

Array = np.ndarray[Any, np.dtype[Any]]
app = typer.Typer(add_completion=False)


class Kernels(NamedTuple):
    """Kernel parameters of pydensecrf."""

    sxy: float
    compat: float
    colour_sxy: float
    srgb: float
    colour_compat: float


SETTINGS = {"of its README": Kernels(3, 3, 80, 13, 10), "smaller": Kernels(1, 3, 30, 10, 5)}


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


# Synthetic scenes: time and figure


def timed(task: Task, theirs: Any) -> dict[str, Any]:
    """Time each system in rounds, one run of every system per round; return seconds, accuracy and agreement."""
    energies, image = energies_of(task.unary), np.array(task.image)
    height, width = task.truth.shape

    def from_dense(library: Any) -> Callable[[], Array]:
        return lambda: dense(library, energies, image, SETTINGS["of its README"]).argmax(0).reshape(height, width)

    systems: dict[str, Callable[[], Array]] = {
        "pydensecrf2": from_dense(theirs),
        "locpmap.compat.densecrf": from_dense(ours),
        "lp.refine": lambda: lp.refine(image, task.unary).labels,
    }
    labels = {name: run() for name, run in systems.items()}  # compiles
    clocks: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    for _, (name, run) in track(list(itertools.product(range(ROUNDS), systems.items())), description=task.name):
        began, used = time.perf_counter(), time.process_time()
        run()
        clocks[name].append((time.perf_counter() - began, time.process_time() - used))
    found: dict[str, Any] = {"size": [height, width, task.n_labels], "network": task.accuracy(task.unary.argmax(-1))}
    found["systems"] = {
        name: {
            "seconds": statistics.median(seconds for seconds, _ in clocks[name]),
            "cpu_seconds": statistics.median(used for _, used in clocks[name]),
            "accuracy": task.accuracy(labels[name]),
            "agreement": float((labels[name] == labels["pydensecrf2"]).mean()),
        }
        for name in systems
    }
    return found


def draw(task: Task, theirs: Any) -> None:
    """Draw a synthetic image, the network's labels, and the labels of all systems."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from locpmap.formats.pictures import label_colours

    energies, image = energies_of(task.unary), np.array(task.image)
    how, shape = SETTINGS["of its README"], task.truth.shape
    refined = lp.refine(image, task.unary)
    maps = {
        "the network's labels": task.unary.argmax(-1),
        "pydensecrf2": dense(theirs, energies, image, how).argmax(0).reshape(shape),
        "locpmap.compat.densecrf": dense(ours, energies, image, how).argmax(0).reshape(shape),
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


# Photographs: agreement of labels


class Scene(NamedTuple):
    """A photograph with its energies and the labels of pydensecrf2."""

    kind: str  # "sharp" or "coarse" logits
    setting: str
    image: Array
    energies: Array
    truth: Array
    theirs: Array


def scenes_of(folder: Path, data: Path | None, names: list[str], theirs: Any) -> Iterator[Scene]:
    """Yield each photograph with sharp and coarse logits under both settings."""
    from locpmap_paper.data import scenes

    known = scenes(data)
    for name in names:
        _, image, truth = known[list(known.names).index(name)]
        sharp = np.load(folder / f"{name}.npy", allow_pickle=False).astype(np.float32)
        for kind, logits in (("sharp", sharp), ("coarse", coarse(sharp))):
            energies, pixels = energies_of(logits), np.array(image)
            for setting, how in SETTINGS.items():
                labels = dense(theirs, energies, pixels, how).argmax(0).reshape(truth.shape)
                yield Scene(kind, setting, pixels, energies, truth, labels)


def coarse(logits: Array) -> Array:
    """Return logits as a network of stride ``STRIDE`` predicts them: means over squares, enlarged."""
    import torch
    import torch.nn.functional as F

    height, width = logits.shape[:2]
    batch = torch.from_numpy(logits).movedim(-1, 0)[None]
    small = F.adaptive_avg_pool2d(batch, (-(-height // STRIDE), -(-width // STRIDE)))
    return F.interpolate(small, size=(height, width), mode="bilinear", align_corners=False)[0].movedim(0, -1).numpy()


def our_labels(scene: Scene) -> Array:
    """Return the labels of `locpmap.compat.densecrf` with its current constants."""
    found = dense(ours, scene.energies, scene.image, SETTINGS[scene.setting])
    return found.argmax(0).reshape(scene.truth.shape)


def choose(scenes: list[Scene]) -> list[dict[str, Any]]:
    """Return the agreement with pydensecrf2 for all candidate constants; the constants are restored at the end."""
    before, rows = (kernels.N_COLOURS, kernels.NEARNESS), []
    for steps, nearness in track(list(itertools.product(STEPS, NEARNESS)), description="choosing"):
        kernels.N_COLOURS, kernels.NEARNESS = steps, nearness
        agreement = [float((our_labels(scene) == scene.theirs).mean()) for scene in scenes]
        rows.append({"steps": steps, "nearness": nearness, "agreement": statistics.mean(agreement)})
    kernels.N_COLOURS, kernels.NEARNESS = before
    return rows


def compare(scenes: list[Scene]) -> list[dict[str, Any]]:
    """Return agreement, and IoU over all scenes, for each kind of logits and each setting."""
    rows = []
    for kind, setting in itertools.product(("sharp", "coarse"), SETTINGS):
        some = [scene for scene in scenes if (scene.kind, scene.setting) == (kind, setting)]
        found = [our_labels(scene) for scene in track(some, description=f"{kind}, {setting}")]
        given = [scene.energies.argmin(0).reshape(scene.truth.shape) for scene in some]
        agreement = [float((labels == scene.theirs).mean()) for labels, scene in zip(found, some, strict=True)]
        of_network = [float((labels == scene.theirs).mean()) for labels, scene in zip(given, some, strict=True)]
        truth = np.concatenate([scene.truth.ravel() for scene in some])
        iou = {
            name: float(np.nanmean(lp.metrics.intersection_over_union(np.concatenate(maps), truth, 8, ignore_label=-1)))
            for name, maps in {
                "network": [labels.ravel() for labels in given],
                "pydensecrf2": [scene.theirs.ravel() for scene in some],
                "compat": [labels.ravel() for labels in found],
            }.items()
        }
        error = statistics.stdev(agreement) / len(agreement) ** 0.5
        row = {"logits": kind, "setting": setting, "agreement": statistics.mean(agreement), "standard_error": error}
        rows.append({**row, "network_agreement": statistics.mean(of_network), "iou": iou})
    return rows


# Record and page


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(record: dict[str, Any]) -> str:
    """Return the part of the page that comes from a record."""
    heads = ["synthetic scene", "system", "seconds", "÷ pydensecrf2", "cpu s", "accuracy", "agreement"]
    rows = []
    for name, task in record["made"].items():
        height, width, n_labels = task["size"]
        base = task["systems"]["pydensecrf2"]["seconds"]
        rows += [
            [
                f"{name}, {height}×{width}, {n_labels} labels (network: {task['network']:.4f})" if k == 0 else "",
                *(system, f"{row['seconds']:.2f}", f"{row['seconds'] / base:.2f}", f"{row['cpu_seconds']:.2f}"),
                *(f"{row['accuracy']:.4f}", f"{row['agreement']:.4f}"),
            ]
            for k, (system, row) in enumerate(task["systems"].items())
        ]
    where = record["provenance"]["machine"]
    parts = [
        f"Medians of {ROUNDS} rounds on {where['cores']} cores ({where['cpu']}, load {where['load']} at the start);"
        " ratios are more reliable than seconds. Agreement is the fraction of pixels with pydensecrf2's label."
        f" Recorded by `{record['provenance']['command']}`.",
        table(heads, rows),
    ]
    if "photographs" in record:
        found = record["photographs"]
        rows = [
            [
                *(row["logits"], row["setting"], f"{row['agreement']:.4f} ± {row['standard_error']:.4f}"),
                *(
                    f"{row['network_agreement']:.4f}",
                    *(f"{row['iou'][n]:.4f}" for n in ("network", "pydensecrf2", "compat")),
                ),
            ]
            for row in found["test"]
        ]
        heads = ["logits", "kernels", "agreement, compat", "agreement, network"]
        heads += ["IoU, network", "IoU, pydensecrf2", "IoU, compat"]
        chosen = max(found["choice"], key=lambda row: row["agreement"])
        parts += [
            f"Agreement with pydensecrf2 and mean IoU on {found['n_test']} photographs of the Stanford Background data."
            " Neither the constants of the translation nor the network were fitted to them. Coarse logits have stride"
            f" {STRIDE} and are enlarged. Settings of the kernels: {kernels_in_words()}.",
            table(heads, rows),
            f"The constants of the translation were compared on {found['n_choice']} other photographs. The best"
            f" agreement is {', '.join(f'{best_of(found, n):.4f} with {n} steps' for n in STEPS)}. The best constants"
            f" are {chosen['steps']} steps and nearness {chosen['nearness']:g}; the library uses"
            f" {record['constants']['steps']} and {record['constants']['nearness']:g}.",
        ]
    return "\n\n".join(parts)


def best_of(found: dict[str, Any], steps: int) -> float:
    """Return the best agreement with the given number of steps."""
    return max(row["agreement"] for row in found["choice"] if row["steps"] == steps)


def kernels_in_words() -> str:
    """Return the parameters of the two settings as text."""
    return "; ".join(
        f"{name}: sxy {how.sxy:g}, compat {how.compat:g}, and sxy {how.colour_sxy:g}, srgb {how.srgb:g}, compat"
        f" {how.colour_compat:g}"
        for name, how in SETTINGS.items()
    )


@app.command()
def record(
    logits: Annotated[Path | None, typer.Option(help="Folder with logits of photographs, NAME.npy (H, W, 8).")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets that contain the photographs.")] = None,
    n_choice: Annotated[int, typer.Option(help="Number of photographs for the choice of constants.")] = 6,
    n_test: Annotated[int, typer.Option(help="Number of photographs for the test.")] = 24,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic scenes.")] = 0,
) -> None:
    """Measure and draw, and write the record and the page."""
    import pydensecrf.densecrf as theirs

    here = machine.machine()
    found: dict[str, Any] = {"provenance": machine.provenance("benchmarks.coming_from_pydensecrf", seed, here)}
    found["constants"] = {"steps": kernels.N_COLOURS, "nearness": kernels.NEARNESS, "places": kernels.N_PLACES}
    found["made"] = {name: timed(make_task(name, seed), theirs) for name in ("T2-hard", "T3-hard")}
    draw(make_task("T2-hard", seed), theirs)
    if logits is not None:
        names = [path.stem for path in sorted(logits.glob("*.npy"))]
        order = [str(name) for name in np.random.default_rng(seed).permutation(names)]
        some, others = order[:n_choice], order[n_choice : n_choice + n_test]
        found["photographs"] = {
            "n_choice": len(some),
            "n_test": len(others),
            "choice": choose(list(scenes_of(logits, data, some, theirs))),
            "test": compare(list(scenes_of(logits, data, others, theirs))),
        }
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
