"""Fits and trainings that one or several processes perform; run as a script, once per process."""

from __future__ import annotations

import shutil
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.crf.fitting import FileStore
from locpmap.errors import InputError
from locpmap.learning import Processes, checkpoint, fit, godambe, joined_processes

N = 23  # enough images for a warm start on a subset
OPTIMISERS = ("adamw", "sgd")

OPTIONS = {field.name for field in fields(lp.learning.FitOptions)}


def examples() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return images of two sizes and labels of three classes; some sites are void (9), in image 4 all of them."""
    rng = np.random.default_rng(3)
    labels = [np.roll([[0, 0, 1, 1, 2, 2, 2][: 6 + (k % 3 == 0)]] * 5, k, axis=1) for k in range(N)]
    labels[2][1, 2:4] = 9
    labels[4][:] = 9
    return [(y % 9 + rng.normal(size=y.shape)).astype(np.float32) for y in labels], labels


def learn(processes: Processes, folder: Path) -> dict[str, np.ndarray]:
    """Return weights, standard errors and loss curves of all kinds of fits; copy a state of two fits to the folder."""
    images, labels = examples()
    pairs = list(zip(images, labels, strict=True))
    square = [n for n in range(N) if images[n].shape == (5, 6) and n != 4]
    array = np.stack([images[n] for n in square]), np.stack([labels[n] for n in square])

    def checkpoint_options(name: str) -> dict[str, Any]:
        state, copy = folder / f"{name}.{processes.size}.state", folder / f"{name}.{processes.size}.kept"

        def progress(done: int, most: int, value: float) -> None:
            if state.exists() and not copy.exists() and done > 5:
                shutil.copy(state, copy)

        return {"checkpoint": state, "progress": progress}

    def run_fit(inputs: Any, *given: Any, **options: Any) -> lp.learning.FitResult:
        own = {name: options.pop(name) for name in OPTIONS if name in options}
        how = lp.learning.FitOptions(processes=processes, **own)
        return lp.CRF(3, ignore_label=9).fit(inputs, *given, options=how, **options)

    results = {
        "pseudolikelihood": run_fit(images, labels, tolerance=1e-9, **checkpoint_options("pseudolikelihood")),
        "composite": run_fit(pairs, objective="composite"),
        "given once": run_fit(iter(pairs), objective="composite", blocks="rows", max_iterations=5),
        "an array": run_fit(*array, site_weights=np.arange(len(square)) + 1.0),
        "consistent": run_fit(images, labels, "consistent", max_iterations=6, **checkpoint_options("consistent")),
        "contrastive": run_fit(images, labels, "contrastive", n_steps=2, max_iterations=6),
        "mini-batches": run_fit(lambda: iter(pairs), batch_size=4, max_iterations=4),
    }
    numbers = {name: result.w for name, result in results.items()}
    errors = {f"errors, {name}": r.standard_errors for name, r in results.items() if r.standard_errors is not None}
    curves = {f"curve, {name}": result.curve for name, result in results.items()}
    return numbers | errors | curves


def resume(processes: Processes, folder: Path, size: int) -> dict[str, np.ndarray]:
    """Return weights and numbers of iterations of fits that resume from states of ``size`` processes."""
    images, labels = examples()
    found = {}
    objectives: dict[str, dict[str, Any]] = {
        "pseudolikelihood": {"tolerance": 1e-9},
        "consistent": {"max_iterations": 6},
    }
    for objective, options in objectives.items():
        state = folder / f"{objective}.resumed.{processes.size}"
        if processes.first:
            shutil.copy(folder / f"{objective}.{size}.kept", state)
        processes.agree(0, "")  # a barrier: the copy exists from here on
        crf = lp.CRF(3, ignore_label=9)
        how = lp.learning.FitOptions(checkpoint=state, processes=processes, **options)
        result = crf.fit(images, labels, objective, options=how)
        found[f"{objective}, resumed"] = result.w
        found[f"{objective}, iterations"] = np.array(result.n_iterations)
    return found


def train(processes: Processes, folder: Path) -> dict[str, np.ndarray]:
    """Return weights and losses of networks trained by pseudolikelihood in double precision.

    Two processes copy their state after five steps; other numbers of processes resume from that copy if it exists.
    """
    import torch

    from locpmap import nn

    torch.set_num_threads(1)
    kept = {}
    for optimiser in OPTIMISERS:
        torch.manual_seed(0)
        head = nn.CRFHead(2, feature_channels=4, objective="pseudolikelihood")
        network = nn.CRFNetwork(nn.FCN(widths=(3, 4)), head).double()

        def draw(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
            labels = torch.randint(2, (5, 1, 1), generator=generator).repeat(1, 4, 5)
            noise = torch.randn(labels.shape, generator=generator, dtype=torch.float64)
            return (labels + noise)[:, None], labels

        state = folder / f"{optimiser}.{processes.size}.training"
        copy = folder / f"{optimiser}.training"

        def progress(done: int, total: int, state: Path = state, copy: Path = copy) -> None:
            if state.exists() and processes.size == 2 and done == 5:
                shutil.copy(state, copy)

        if copy.exists() and processes.size != 2 and processes.first:
            shutil.copy(copy, state)
        processes.agree(0, "")
        recipe = nn.Recipe(9, 0.01, optimiser=optimiser)
        done = nn.train(network, draw, recipe, checkpoint=state, progress=progress, processes=processes)
        kept[f"losses, {optimiser}"] = np.array(done.losses)
        kept |= {f"{optimiser}, {name}": value.numpy() for name, value in network.state_dict().items()}
    if processes.size > 1:
        one = torch.zeros(1, 1, 4, 5, dtype=torch.float64), torch.zeros(1, 4, 5, dtype=torch.int64)
        with pytest.raises(InputError, match="processes for the 1 images of a batch, expected no more"):
            nn.train(network, lambda generator: one, nn.Recipe(1, 0.01), processes=processes)
    return kept


def save_every_iteration() -> None:
    """Save states after every iteration, and warm-start fits on a subset of the data."""
    checkpoint.SECONDS_BETWEEN_SAVES = 0.0
    fit.WARM_UP_SITES = godambe.CURVATURE_SITES = 100


def main(folder: Path) -> None:
    """Run all fits and trainings with the processes that torchrun started, and save their numbers."""
    from locpmap.nn import training

    save_every_iteration()
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    with joined_processes() as processes:
        assert (processes.tell(f"ä {processes.rank}"), processes.tell("")) == ("ä 0", "")
        if not processes.first:  # only the first process writes files
            training._save_state = FileStore.save = FileStore.remove = None  # type: ignore
        numbers: dict[str, Any] = learn(processes, folder) | train(processes, folder)
        if processes.size == 3:
            numbers |= resume(processes, folder, 2)
        np.savez(folder / f"{processes.size}.{processes.rank}.npz", **numbers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
