"""The methods of the arena: each is fitted to held-out images and returns probabilities and labels of an image."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import locpmap as lp
from benchmarks.arena.cells import OF_VOLUMES, Cell, Seen
from benchmarks.deciding import as_colours
from benchmarks.dense import GRID, Dense
from locpmap.refining.examples import gather
from locpmap.refining.fitting import fit_scale
from locpmap.refining.model import resize
from locpmap.refining.scoring import score, softmax, total

Array = npt.NDArray[Any]
NETWORK, SCALED, VECTOR = "network", "temperature scaling", "vector scaling"
DEFAULT, DECIDED, FITTED = "lp.refine", "lp.refine, decided", "Refiner.fit, {} images"
FITTED_DECIDED = "Refiner.fit, all images, decided"
OVER_DATASET = "{}, decided over the data set"
USUAL, TUNED = "pydensecrf2, usual settings", "pydensecrf2, tuned"
GUIDED, RANKSEG = "guided filter, tuned", "RankSEG"
N_TUNING = 8  # held-out images for the tuning of other tools
N_PIXELS = 2000  # per image, for vector scaling
FEW = (20, 50)  # held-out images of a fit


class Output(NamedTuple):
    """What a method returns for an image or volume."""

    probability: Array  # (H, W, K) or (D, H, W, K)
    labels: Array  # (H, W) or (D, H, W)


class Given(NamedTuple):
    """What a method may use."""

    cell: Cell
    held_out: Sequence[Seen]
    judged: Sequence[Seen]  # without their labels
    weights: Path  # folder of the refiners that `learn` wrote


_FITTED: dict[tuple[Cell, int | None, int], lp.Refiner] = {}  # for methods that differ in the decision only
Method = Callable[[Seen], Output]
Maker = Callable[[Given], Method]


def enlarged(seen: Seen) -> Array:
    """Return the logits, resized bilinearly to the image."""
    found: Array = resize(seen.logits[None], *seen.labels.shape)[0]
    return found


def _argmax(probability: Array) -> Output:
    return Output(probability, probability.argmax(-1))


def network(given: Given) -> Method:
    """Return the softmax of the resized logits."""
    return lambda seen: _argmax(softmax(enlarged(seen)))


def _scale(held_out: Sequence[Seen]) -> np.float32:
    full, labels = [enlarged(seen) for seen in held_out], [seen.labels for seen in held_out]
    return np.float32(fit_scale(gather(None, full, labels, -1, held_out[0].layout, "logits", 1.0), 0))


def scaled(given: Given) -> Method:
    """Return temperature scaling."""
    scale = _scale(given.held_out)
    return lambda seen: _argmax(softmax(scale * enlarged(seen)))


def vector_scaled(given: Given) -> Method:
    """Return vector scaling: one factor and one offset per label, by maximum likelihood."""
    from scipy.optimize import minimize

    rng, rows, true = np.random.default_rng(0), [], []
    for seen in given.held_out:
        places = rng.permutation(np.flatnonzero(seen.labels.ravel() >= 0))[:N_PIXELS]
        full = enlarged(seen)
        rows.append(full.reshape(-1, full.shape[-1])[places])
        true.append(seen.labels.ravel()[places])
    x, y = np.concatenate(rows).astype(np.float64), np.concatenate(true)
    n_labels, at = x.shape[1], np.arange(len(y))

    def loss(found: Array) -> tuple[float, Array]:
        factor, offset = found.reshape(2, n_labels)
        p = softmax(factor * x + offset)
        value = -np.log(np.maximum(p[at, y], 1e-300)).mean()
        p[at, y] -= 1
        return float(value), np.concatenate([(p * x).sum(0), p.sum(0)]) / len(y)

    start = np.concatenate([np.ones(n_labels), np.zeros(n_labels)])
    factor, offset = minimize(loss, start, jac=True, method="L-BFGS-B").x.reshape(2, n_labels).astype(np.float32)
    return lambda seen: _argmax(softmax(factor * enlarged(seen) + offset))


def _refined(refiner: lp.Refiner, decided: str | None, judged: Sequence[Seen]) -> Method:
    def refine(seen: Seen) -> lp.Result:
        return refiner.refine(seen.image, seen.logits, layout=seen.layout, scores="logits")

    over: str | lp.Decider | None = decided
    if decided == "dataset":
        over = lp.Decider("iou")
        for seen in judged:
            over.add(refine(seen))

    def run(seen: Seen) -> Output:
        result = refine(seen)
        return Output(result.probability, result.labels if over is None else result.decide("iou", over=over).labels)

    return run


def default(given: Given, *, decided: str | None = None) -> Method:
    """Return the refiner that was learned on all data sets but this one; the bundled one knows images only."""
    weights = None if given.cell in OF_VOLUMES else given.weights / f"without-{given.cell.dataset}.safetensors"
    return _refined(lp.Refiner.load(weights), decided, given.judged)


def fitted(given: Given, *, limit: int | None = None, decided: str | None = None) -> Method:
    """Return a refiner that was fitted to some or all held-out images."""
    held_out, key = given.held_out, (given.cell, limit, len(given.held_out))
    if key not in _FITTED:
        step = 1 if limit is None else max(1, len(held_out) // limit)
        images, logits, labels = map(list, zip(*held_out[::step][:limit], strict=True))
        _FITTED[key] = lp.Refiner.fit(images, logits, labels, layout=held_out[0].layout, scores="logits")
    return _refined(_FITTED[key], decided, given.judged)


def dense(given: Given, *, tune: bool) -> Method:
    """Return pydensecrf2 with its usual settings, or with the most likely ones on held-out images."""
    scale = _scale(given.held_out) if tune else np.float32(1)

    def run(setting: Dense, seen: Seen) -> Array:
        return setting(as_colours(seen.image), scale * enlarged(seen))

    return _tuned(GRID if tune else [Dense()], run, given.held_out)


def _tuned(settings: Sequence[Any], run: Callable[[Any, Seen], Array], held_out: Sequence[Seen]) -> Method:
    """Return the setting with the lowest negative log-likelihood on held-out images."""
    some = held_out[:: max(1, len(held_out) // N_TUNING)][:N_TUNING]

    def loss(setting: Any) -> float:
        return total([score(run(setting, seen), seen.labels) for seen in some]).nll

    best = min(settings, key=loss) if len(settings) > 1 else settings[0]
    return lambda seen: _argmax(run(best, seen))


def guided(given: Given) -> Method:
    """Return OpenCV's guided filter of the scaled network's probabilities; volumes are filtered slice by slice."""
    from cv2 import ximgproc  # type: ignore[import-not-found,unused-ignore]

    scale = _scale(given.held_out)

    def run(setting: tuple[int, float], seen: Seen) -> Array:
        p, guide = softmax(scale * enlarged(seen)), as_colours(seen.image)
        planes = zip(guide, p, strict=True) if p.ndim == 4 else [(guide, p)]
        filtered = [filter_plane(setting, *plane) for plane in planes]
        return _normalised(np.stack(filtered) if p.ndim == 4 else filtered[0])

    def filter_plane(setting: tuple[int, float], guide: Array, p: Array) -> Array:
        layers = [ximgproc.guidedFilter(guide, np.ascontiguousarray(layer), *setting) for layer in _layers(p)]
        return np.stack(layers, axis=-1)

    return _tuned([(r, e) for r in (2, 4, 8, 16) for e in (10.0, 100.0, 1000.0)], run, given.held_out)


def _layers(p: Array) -> list[Array]:
    return list(np.moveaxis(p, -1, 0))


def _normalised(p: Array) -> Array:
    p = np.maximum(np.nan_to_num(p), 1e-6)
    return p / p.sum(-1, keepdims=True)


def rankseg(given: Given) -> Method:
    """Return RankSEG's labels for IoU, from the probabilities of the scaled network."""
    from benchmarks.deciding import rankseg as decide

    scale = _scale(given.held_out)

    def run(seen: Seen) -> Output:
        p = softmax(scale * enlarged(seen))
        return Output(p, decide("IoU")(p))

    return run


METHODS: dict[str, Maker] = {
    NETWORK: network,
    SCALED: scaled,
    VECTOR: vector_scaled,
    DEFAULT: default,
    DECIDED: partial(default, decided="image"),
    OVER_DATASET.format(DEFAULT): partial(default, decided="dataset"),
    **{FITTED.format(n): partial(fitted, limit=n) for n in FEW},
    FITTED.format("all"): fitted,
    FITTED_DECIDED: partial(fitted, decided="image"),
    OVER_DATASET.format(FITTED.format("all")): partial(fitted, decided="dataset"),
    USUAL: partial(dense, tune=False),
    TUNED: partial(dense, tune=True),
    GUIDED: guided,
    RANKSEG: rankseg,
}
OURS = tuple(name for name in METHODS if name.startswith(("lp.refine", "Refiner.fit")))
