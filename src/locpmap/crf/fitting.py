"""Fitting of a CRF: data, objective, optimiser, and LocPMAP as the sampler of consistent learning."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.arrays import Array, on_gpu
from locpmap.crf.compose import compose
from locpmap.errors import InputError, InputTypeError, one_of, whole_number
from locpmap.features import Features, ImageFeatures
from locpmap.formats.model_file import read_model, write_model
from locpmap.graphs import Graph
from locpmap.inference import Gibbs, LocPMAP, samples
from locpmap.kernels.placement import FITTING, Job
from locpmap.learning import FitOptions, FitResult, Processes
from locpmap.learning.batches import Batch, split
from locpmap.learning.checkpoint import Checkpoint, State, digest_of
from locpmap.learning.contrastive import fit_contrastive
from locpmap.learning.dataset import Dataset, read_dataset
from locpmap.learning.fit import SEEDS, Control, Sampler, fit_lbfgs, fit_stochastic
from locpmap.learning.objectives import Objective
from locpmap.learning.parameters import Parameters
from locpmap.progress import reporting

MEMORY_FACTOR = 3  # estimate of the memory needed on the device, as a multiple of the data's size
OBJECTIVES = ("pseudolikelihood", "composite", "consistent", "contrastive", "likelihood")
WITH_BLOCKS = ("composite", "consistent", "contrastive")
HELD_OUT_FRACTION = 0.2
N_STEPS = 10
CHAIN = 1 << 48  # difference between the seeds of two chains


@dataclass
class Extractor:
    """Conversion of inputs to features; the first labelled image determines whether images have a channel axis."""

    features: Callable[[Any], Features] | None
    decided: bool = False

    def __call__(self, value: Any, labels: Any = None) -> Features:
        if isinstance(value, Features):
            return value
        if self.features is None:
            raise InputTypeError(
                f"an input is a {type(value).__name__}, expected Features because the CRF has features=None"
            )
        if isinstance(self.features, ImageFeatures) and labels is not None and not self.decided:
            more = np.ndim(value) - np.ndim(labels)
            if more not in (0, 1):
                raise InputError(
                    f"an image has {np.ndim(value)} axes and its labels have {np.ndim(labels)},"
                    " expected as many, or one more for channels"
                )
            self.features = replace(self.features, channels=int(np.shape(value)[-1]) if more else None)
            self.decided = True
        if not callable(self.features):
            raise InputTypeError(f"features is {self.features!r}, expected a function of an input, or None")
        return self.features(value)


@dataclass(frozen=True)
class Task:
    """The validated arguments of `CRF.fit`."""

    objective: str
    blocks: Any
    l2: float
    seed: int
    progress: bool | Callable[[int, int, float], None]
    device: str  # device on which samples are drawn
    options: FitOptions
    n_steps: int | None = None


def check_objective(objective: str, blocks: Any, n_steps: Any) -> None:
    """Raise if the objective is unknown, or an option belongs to another one."""
    one_of("objective", objective, OBJECTIVES)
    if blocks is not None and objective not in WITH_BLOCKS:
        raise InputError(f"blocks is given with objective={objective!r}, expected it with one of {WITH_BLOCKS}")
    if objective == "contrastive" and isinstance(blocks, str) and blocks == "clusters":
        raise InputError("blocks is 'clusters' with objective='contrastive', expected lines, strips, trees or tiles")
    if n_steps is not None:
        if objective != "contrastive":
            raise InputError(f"n_steps is given with objective={objective!r}, expected it with 'contrastive'")
        whole_number("n_steps", n_steps, 1)


def job_of(inputs: Any, batches: list[Batch], n_labels: int, processes: Processes) -> Job:
    """Return size and device of a fit, for its placement; several processes, which must agree, prefer the CPU."""
    arrays = [a for b in batches for a in (b.features.unary, b.features.pairwise, b.labels, b.site_weights)]
    first = inputs[0] if isinstance(inputs, list) and inputs else inputs
    lies_on = str(first.device) if on_gpu(first) else None
    if processes.size > 1 or any(isinstance(array, np.memmap) for array in arrays):
        return Job(None if processes.size > 1 else lies_on, least_work=FITTING)
    scores = n_labels * sum(batch.labels.size for batch in batches)
    return Job(lies_on, scores, MEMORY_FACTOR * sum(array.nbytes for array in arrays), FITTING)


def fit(
    parameters: Parameters, batches: list[Batch], validation: list[Batch] | None, task: Task, kernels: Any
) -> FitResult:
    """Fit the weights and return the result."""
    options, processes = task.options, task.options.processes
    on_graph = isinstance(batches[0].features.structure, Graph)
    if task.objective == "composite" and task.blocks is None and on_graph:
        raise InputError("blocks is missing, expected a list of site lists for objective='composite' on a graph")
    blocks = {"composite": task.blocks or "rows+columns", "likelihood": "all"}.get(task.objective)
    objective = Objective(parameters, kernels, task.l2, blocks, contrastive=task.objective == "contrastive")
    if objective.contrastive:
        for batch in batches:
            objective.check_weights(batch)
    data = read_dataset(parameters, batches, processes)
    if data.n_images < processes.size:
        raise InputError(
            f"there are {processes.size} processes for {data.n_images} labelled inputs, expected no more processes"
            " than inputs"
        )
    store = None
    if options.checkpoint is not None:
        store = FileStore(options.checkpoint, _fingerprint(parameters, data, validation, task))
    with reporting(processes.first and task.progress, task.objective, "done, total, value") as progress:
        limits = (options.max_iterations, options.tolerance, task.seed, progress)
        control = Control(*limits, Checkpoint(store, processes), options.batch_size)
        start = np.zeros(parameters.size)
        unsaved = replace(control, checkpoint=Checkpoint(None))
        if objective.contrastive:
            start = fit_lbfgs("pseudolikelihood", objective, data, start, unsaved).w
            moves = (task.n_steps or N_STEPS, task.blocks or "sites")
            chains = chains_of(parameters, *moves, kernels.threads.n_threads, task.device)
            result = fit_contrastive(objective, data, chains, start, control)
        elif task.objective != "consistent" and options.batch_size is None:
            result = fit_lbfgs(task.objective, objective, data, start, control, with_errors=options.standard_errors)
        else:
            if blocks is not None and validation is None and data.n_images < 5:
                raise InputError(
                    f"batch_size needs five inputs or validation=.. with objective={task.objective!r},"
                    f" got {data.n_images} inputs"
                )
            training, held_out = _held_out(batches, validation, task.seed)
            data = data.part(training)  # the fits of the starting points also exclude the held-out data
            sampler = independent = None
            if task.objective == "consistent":
                sampler = sampler_of(parameters, task.blocks or "sites", kernels.threads.n_threads, task.device)
                # If the true neighbours nearly determine a label, pseudolikelihood ignores the unaries and is a poor
                # start. Weights learned without neighbours are the alternative.
                without_neighbours = replace(objective, blocks=None, independent=True)
                independent = fit_lbfgs("independent sites", without_neighbours, data, start, unsaved).w
                start = fit_lbfgs("pseudolikelihood", objective, data, start, unsaved).w
            begin = (start, control, sampler, independent)
            result = fit_stochastic(task.objective, objective, data, held_out, *begin)
    if store is not None and processes.first:
        store.path.unlink(missing_ok=True)
    return result


def sampler_of(parameters: Parameters, blocks: Any, n_threads: int, device: str = "auto") -> Sampler:
    """Return LocPMAP as a sampler for `fit_stochastic`; samples agree between devices except for rounding."""

    def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
        potentials = compose(batch.features, *parameters.expand(w), potts=parameters.potts, mask=batch.mask())
        how: dict[str, Any] = {"seed": seed, "first_image": first_image, "n_threads": n_threads, "device": device}
        # Masked sites have label -1, which is VOID.
        drawn = list(samples(potentials, LocPMAP(n_samples, blocks=blocks), chunk=n_samples, **how))
        flat = np.asarray(drawn, np.int16).reshape(n_samples, *batch.labels.shape)
        return np.ascontiguousarray(np.moveaxis(flat, 0, 2))

    return sample


def chains_of(parameters: Parameters, n_steps: int, blocks: Any, n_threads: int, device: str = "auto") -> Sampler:
    """Return a sampler of labels after ``n_steps`` sweeps of Gibbs sampling over blocks, from the true labels."""
    if not isinstance(blocks, str) or blocks != "sites":
        device = "cpu"  # blocks have no GPU kernels

    def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
        potentials = compose(batch.features, *parameters.expand(w), potts=parameters.potts, mask=batch.mask())
        start = potentials.unflatten(batch.labels)
        chain = Gibbs(1, burn_in=n_steps - 1, start=start, blocks=blocks)
        how: dict[str, Any] = {"first_image": first_image, "n_threads": n_threads, "device": device}
        seeds = [(seed + m * CHAIN) % SEEDS for m in range(n_samples)]
        drawn = [next(iter(samples(potentials, chain, seed=s, **how))) for s in seeds]
        return np.stack([np.asarray(y, np.int16).reshape(batch.labels.shape) for y in drawn], axis=2)

    return sample


def _held_out(batches: list[Batch], validation: list[Batch] | None, seed: int) -> tuple[list[Batch], list[Batch]]:
    training, held_out = split(batches, HELD_OUT_FRACTION, seed) if validation is None else (batches, validation)
    if not all(sum(batch.weight() for batch in part) > 0 for part in (training, held_out)):
        raise InputError("there are too few labelled sites to hold some out, expected more data or validation=..")
    return training, held_out


def _fingerprint(parameters: Parameters, data: Dataset, validation: list[Batch] | None, task: Task) -> dict[str, Any]:
    """Return the settings and digests that must be equal for a fit to resume from a checkpoint."""
    processes = task.options.processes
    return {
        "objective": task.objective,
        "blocks": repr(task.blocks),
        "n_steps": task.n_steps,
        "l2": task.l2,
        "seed": task.seed,
        "batch_size": task.options.batch_size,
        "tolerance": task.options.tolerance,
        "parameters": json.loads(json.dumps(asdict(parameters))),  # with lists for tuples, as read from a file
        "labels": digest_of(data.batches, processes),
        "scales": [float(f"{scale:.6g}") for scale in data.scales],  # later digits depend on the number of processes
        "validation": None if validation is None else digest_of(validation, processes),
    }


class FileStore:
    """Storage of a fit's state in a file whose header identifies the fit."""

    def __init__(self, path: str | os.PathLike[str], fit: dict[str, Any]) -> None:
        self.path, self.fit = Path(path), fit

    def load(self) -> State | None:
        """Return the state, or None if there is no file; raise InputError for the state of another fit."""
        if not self.path.exists():
            return None
        arrays, header = read_model(self.path)
        if header.get("fit") != self.fit:
            raise InputError(
                f"checkpoint {self.path} belongs to another fit, expected a new path or the same data and options"
            )
        return arrays

    def save(self, state: State) -> None:
        write_model(self.path, state, {"kind": "checkpoint", "fit": self.fit})
