"""Area intervals of noisy silhouettes by a small model: two labels, both present in every image."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.refining_measures import areas_of
from locpmap.refining.examples import Example, gather
from locpmap.refining.fitting import fit_scale, learn
from locpmap.refining.weights import Weights
from locpmap_paper.data import silhouettes

Array = npt.NDArray[Any]
NOISE = (0.70, 1.41)  # standard deviations, as in `locpmap reproduce caltech`
SMOOTHED = (0.7, 1.5, 3.0, 6.0)  # widths in pixels of the smoothed copies that are features of the model
N_MODEL, N_HELD_OUT, N_TEST = 400, 300, 1000


def measured(data: Path, seed: int) -> dict[str, Any]:
    """Return coverage, width and CRPS of 90 % intervals by noise level, for independent pixels and a refiner."""
    maps = silhouettes(data)
    train, test = maps.train[: N_MODEL + N_HELD_OUT].astype(int), maps.test[:N_TEST].astype(int)
    found: dict[str, Any] = {"images": {"model": N_MODEL, "held_out": N_HELD_OUT, "test": len(test)}, "noise": {}}
    for noise in NOISE:
        rng = np.random.default_rng(seed)
        seen, unseen = (labels + noise * rng.normal(size=labels.shape) for labels in (train, test))
        w = _logistic(seen[:N_MODEL], train[:N_MODEL])
        held_out = _examples(seen[N_MODEL:], train[N_MODEL:], w)
        alone = Weights([1.0], [fit_scale(held_out, seed)])
        fitted = learn(held_out, seed)
        rows = {"pixels by themselves": alone, "Refiner.measure": fitted}
        judged = _examples(unseen, test, w)
        accuracy = np.mean([(example.scores.argmax(-1) == example.labels).mean() for example in judged])
        found["noise"][f"{noise:.2f}"] = {
            "rows": {name: areas_of(judged, weights, seed) for name, weights in rows.items()},
            "shared": float(fitted.shared[0]),
            "accuracy": float(accuracy),
        }
    return found


def _examples(images: Array, labels: Array, w: Array) -> list[Example]:
    scores = [_features(image) @ w for image in images]
    return gather(images, [np.stack([0 * s, s], axis=-1) for s in scores], labels, -1, "hwk", "logits", None)


def _features(image: Array) -> Array:
    """Return a constant, the image and its smoothed copies, (H, W, 6)."""
    from scipy.ndimage import gaussian_filter

    return np.stack([np.ones_like(image), image, *(gaussian_filter(image, s) for s in SMOOTHED)], axis=-1)


def _logistic(images: Array, labels: Array) -> Array:
    """Return the weights of the features by logistic regression over pixels."""
    from scipy.optimize import minimize

    x, y = np.stack([_features(image) for image in images]).reshape(-1, len(SMOOTHED) + 2), labels.ravel()

    def loss(w: Array) -> tuple[float, Array]:
        z = x @ w
        return float((np.logaddexp(0, z) - y * z).mean()), x.T @ (1 / (1 + np.exp(-z)) - y) / len(y)

    return np.asarray(minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x)
