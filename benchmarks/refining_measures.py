"""Evaluation of refinement compared with the network alone and pydensecrf2: IoU, calibration, areas, time."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.refining_page import COMPONENTS
from benchmarks.refining_scenes import SceneWithLogits, near_boundaries
from benchmarks.tasks import make_task
from locpmap.inference import LocPMAP
from locpmap.learning.proper_scores import crps
from locpmap.measuring.quantities import components
from locpmap.refining.api import refine
from locpmap.refining.examples import VOID, Example, gather
from locpmap.refining.fitting import fit_scale
from locpmap.refining.prepared import Prepared
from locpmap.refining.refiner import Refiner
from locpmap.refining.resizing import resize
from locpmap.refining.scoring import METRICS, Score, difference, score, softmax, total
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
NETWORK, SCALED, REFINED = "network", "network, temperature scaled", "lp.refine"
USUAL, TUNED = "pydensecrf2, usual settings", "pydensecrf2, tuned"
BOUNDARY = 3  # pixels
N_TUNING = 8  # held-out scenes for the tuning of pydensecrf2
ITERATIONS = 10
N_SAMPLES = 60  # samples of each area
LEAST_AREA = 0.01  # minimum fraction of the image for an area to be evaluated
MEASURES = {**METRICS, f"IoU within {BOUNDARY} pixels of boundaries": METRICS["IoU"]}


class Decoded(NamedTuple):
    """What a method returns for a scene."""

    probability: Array  # (H, W, K)
    labels: Array  # (H, W)


@dataclass(frozen=True)
class Dense:
    """pydensecrf2 with settings of its smoothness and bilateral kernels; the defaults are those of its README."""

    compat: float = 3
    sxy: float = 80
    srgb: float = 13
    bilateral: float = 10

    def __call__(self, image: npt.NDArray[np.uint8], logits: Array) -> Array:
        """Return probabilities (H, W, K) after ten mean-field iterations."""
        import pydensecrf.densecrf as dcrf

        height, width, n_labels = logits.shape
        crf = dcrf.DenseCRF2D(width, height, n_labels)
        crf.setUnaryEnergy(np.ascontiguousarray(-logits.reshape(-1, n_labels).T, np.float32))
        crf.addPairwiseGaussian(sxy=3, compat=self.compat)
        pixels = np.array(image)  # pydensecrf does not accept read-only arrays
        crf.addPairwiseBilateral(sxy=self.sxy, srgb=self.srgb, rgbim=pixels, compat=self.bilateral)
        return np.asarray(crf.inference(ITERATIONS)).T.reshape(height, width, n_labels)


# The default settings with weaker couplings, shorter range, and two widths of the colour kernel.
GRID = [Dense(3 * weak, sxy, srgb, 10 * weak) for weak, sxy, srgb in itertools.product((0.1, 0.3), (20, 60), (5, 13))]


def enlarged(scene: SceneWithLogits, stride: int) -> Array:
    """Return the coarse logits, enlarged to the size of the scene."""
    found: Array = resize(scene.coarse(stride)[None], *scene.labels.shape)[0]
    return found


def temperature(scenes: Sequence[SceneWithLogits], stride: int) -> float:
    """Return the factor of the logits that maximises the likelihood of the scenes."""
    large, labels = [enlarged(scene, stride) for scene in scenes], [scene.labels for scene in scenes]
    return fit_scale(gather(None, large, labels, -1, "hwk", "logits", stride), 0)


def tuned(scenes: Sequence[SceneWithLogits], stride: int, scale: float) -> Dense:
    """Return the settings with the best likelihood on held-out scenes."""

    def loss(dense: Dense) -> float:
        found = [score(dense(s.image, scale * enlarged(s, stride)), s.labels) for s in scenes[:N_TUNING]]
        return total(found).nll

    return min(GRID, key=loss)


def _refined(scene: SceneWithLogits, stride: int, seed: int) -> Decoded:
    result = refine(scene.image, scene.coarse(stride), layout="hwk", seed=seed)
    return Decoded(np.asarray(result.probability), np.asarray(result.labels))


def _most_probable(probability: Array) -> Decoded:
    return Decoded(probability, probability.argmax(axis=-1))


def compare(
    held_out: Sequence[SceneWithLogits],
    test: Sequence[SceneWithLogits],
    stride: int,
    seed: int,
    *,
    dense: bool,
) -> dict[str, Any]:
    """Return every measure of every method on the test scenes, and its difference from the scaled network."""
    scale = temperature(held_out, stride)
    methods: dict[str, Callable[[SceneWithLogits, Array], Decoded]] = {
        NETWORK: lambda scene, logits: _most_probable(softmax(logits)),
        SCALED: lambda scene, logits: _most_probable(softmax(scale * logits)),
        REFINED: lambda scene, logits: _refined(scene, stride, seed),
    }
    settings: dict[str, Any] = {SCALED: {"factor": scale}}
    if dense:
        best = tuned(held_out, stride, scale)
        methods[USUAL] = lambda scene, logits: _most_probable(Dense()(scene.image, logits))
        methods[TUNED] = lambda scene, logits: _most_probable(best(scene.image, scale * logits))
        settings[TUNED] = vars(best) | {"factor": scale}
    everywhere: dict[str, list[Score]] = {name: [] for name in methods}
    boundary: dict[str, list[Score]] = {name: [] for name in methods}
    n_components: dict[str, list[int]] = {name: [] for name in methods}
    for scene in test:
        logits, near = enlarged(scene, stride), near_boundaries(scene.labels, BOUNDARY)
        for name, method in methods.items():
            probability, labels = method(scene, logits)
            everywhere[name].append(score(probability, scene.labels, labels))
            boundary[name].append(score(probability, near, labels))
            n_components[name].append(int(components(labels, probability.shape[-1]).sum()))
    rows: dict[str, Any] = {}
    for name in methods:
        rows[name] = {}
        for measure, metric in MEASURES.items():
            scores = everywhere if measure in METRICS else boundary
            gain, error = difference(scores[name], scores[SCALED], metric)
            rows[name][measure] = {"value": metric(total(scores[name])), "gain": gain, "standard_error": error}
        gains = np.subtract(n_components[name], n_components[SCALED])
        rows[name][COMPONENTS] = {
            "value": float(np.mean(n_components[name])),
            "gain": float(gains.mean()),
            "standard_error": float(gains.std(ddof=1) / np.sqrt(len(gains))),
        }
    return {"rows": rows, "settings": settings}


def areas(
    held_out: Sequence[SceneWithLogits], test: Sequence[SceneWithLogits], stride: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return coverage and width of 90 % area intervals and the CRPS; areas are fractions of the image."""
    images, labels = [scene.image for scene in test], [scene.labels for scene in test]
    logits = [scene.coarse(stride) for scene in test]
    judged = gather(images, logits, labels, -1, "hwk", "logits", stride)
    alone = Weights([stride], [temperature(held_out, stride)])
    rows = {"independent pixels": alone, "Refiner.measure": Refiner.load().weights}
    return {name: areas_of(judged, weights, seed) for name, weights in rows.items()}


def sampled_fractions(example: Example, weights: Weights, seed: int) -> tuple[Array, Array]:
    """Return sampled and true label areas, (M, K) and (K,), as fractions of the labelled pixels."""
    counted = example.labels != VOID
    truth = np.bincount(example.labels[counted], minlength=example.scores.shape[-1])
    prepared = Prepared.of(example.given, weights, mask=None if counted.all() else ~counted, stride=example.stride)
    values = prepared.measure("area", LocPMAP(N_SAMPLES, start="perturbed"), seed=seed).values
    return values / values.sum(axis=1, keepdims=True), truth / counted.sum()


def areas_of(judged: Sequence[Example], weights: Weights, seed: int) -> dict[str, float]:
    """Return the coverage and width of intervals for present labels, the coverage for absent ones, and the CRPS."""
    there, absent, width, loss = [], [], [], []
    for example in judged:
        values, truth = sampled_fractions(example, weights, seed)
        low, high = np.quantile(values, [0.05, 0.95], axis=0)
        large, inside = truth > LEAST_AREA, (low <= truth) & (truth <= high)
        imagined = ~large & (values.mean(axis=0) > LEAST_AREA)
        there.append(inside[large])
        absent.append(inside[imagined])
        width.append((high - low)[large])
        loss.append(crps(values, truth)[large | imagined])
    joined = {"coverage": there, "absent": absent, "width": width, "crps": loss}
    parts = {key: np.concatenate(found) for key, found in joined.items()}
    return {key: float(found.mean()) for key, found in parts.items() if found.size}


def seconds(seed: int, repeats: int = 15) -> dict[str, Any]:
    """Time `lp.refine`, `Refiner.measure` and pydensecrf2 on T3, alternating: elapsed and processor time."""
    task = make_task("T3", seed)
    assert task.image is not None
    image = np.ascontiguousarray(task.image)
    runs: dict[str, Callable[[], Any]] = {
        "lp.refine": lambda: refine(image, task.unary, seed=seed),
        "Refiner.measure, 200 samples": lambda: Refiner.load().measure(image, task.unary, "area", seed=seed),
        "pydensecrf2": lambda: Dense()(image, task.unary),
    }
    clocks: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            clocks[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    medians = {
        name: {key: statistics.median(clock[n] for clock in found) for n, key in enumerate(("seconds", "cpu_seconds"))}
        for name, found in clocks.items()
    }
    ratio = medians["lp.refine"]["seconds"] / medians["pydensecrf2"]["seconds"]
    return {"task": "T3", "iterations": ITERATIONS, "medians": medians, "ratio": ratio}
