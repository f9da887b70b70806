"""How a CRF is fitted: data, objective, optimiser, and LocPMAP as the sampler of consistent learning."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.crf.compose import compose
from locpmap.crf.inputs import Spool
from locpmap.crf.progress import listener
from locpmap.crf.store import FileStore
from locpmap.errors import InputError, InputTypeError
from locpmap.features import Features, ImageFeatures
from locpmap.graphs import Grid
from locpmap.inference import LocPMAP, samples
from locpmap.kernels.threads import Threads
from locpmap.learning.batches import Batch, Source, split
from locpmap.learning.checkpoint import Checkpoint, digest_of
from locpmap.learning.fit import Control, Sampler, fit_all, fit_stochastic
from locpmap.learning.objectives import Objective
from locpmap.learning.parameters import Parameters
from locpmap.learning.processes import ALONE, Processes
from locpmap.learning.result import FitResult

Array = npt.NDArray[Any]
OBJECTIVES = ("pseudolikelihood", "composite", "consistent", "likelihood")
HELD_OUT_SHARE = 0.2


@dataclass
class Extractor:
    """Turns inputs into features; learns from the first labelled image whether images have a channel axis."""

    features: Callable[[Any], Features] | None
    decided: bool = False

    def __call__(self, value: Any, labels: Any = None) -> Features:
        """Features of one input or of a batch."""
        if isinstance(value, Features):
            return value
        if self.features is None:
            raise InputTypeError(
                f"an input is a {type(value).__name__}, expected Features since features=None was chosen"
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
        return self.features(value)


@dataclass(frozen=True)
class Options:
    """What `CRF.fit` was asked for, validated there."""

    objective: str
    blocks: Any
    l2: float
    max_iterations: int
    tolerance: float
    batch_size: int | None
    seed: int
    checkpoint: str | os.PathLike[str] | None
    progress: bool | Callable[[int, int, float], None]
    standard_errors: bool
    device: str  # where samples are drawn
    processes: Processes = ALONE


def fit(
    make_parameters: Callable[[Features], Parameters],
    source: Source,
    validation: Source | None,
    options: Options,
    kernels: Any,
    threads: Threads,
) -> tuple[Parameters, FitResult]:
    """Fit the weights of whatever shape the first batch asks for."""
    first = next(iter(source), None)
    if first is None:
        raise InputError("inputs is empty, expected at least one input")
    parameters = make_parameters(first.features)
    blocks = {"composite": options.blocks or "rows+columns", "likelihood": "all"}.get(options.objective)
    if options.objective == "composite" and options.blocks is None and not isinstance(first.features.structure, Grid):
        raise InputError("blocks is missing, expected a list of site lists for objective='composite' on a graph")
    processes = options.processes
    objective = Objective(parameters, source, kernels, threads, l2=options.l2, blocks=blocks, processes=processes)
    if objective.n_images < processes.size:
        raise InputError(
            f"there are {processes.size} processes for {objective.n_images} labelled inputs, expected no more processes"
            " than inputs"
        )
    store = (
        None
        if options.checkpoint is None
        else FileStore(options.checkpoint, _fingerprint(objective, validation, options))
    )
    with listener(processes.first and options.progress, options.objective) as progress:
        checkpoint = Checkpoint(store, processes)
        control = Control(
            options.max_iterations, options.tolerance, options.seed, progress, checkpoint, options.batch_size
        )
        start = np.zeros(parameters.size)
        if options.objective != "consistent" and options.batch_size is None:
            result = fit_all(options.objective, objective, start, control, with_errors=options.standard_errors)
        else:
            sampler = independent = None
            if blocks is not None and validation is None and objective.n_images < 5:
                raise InputError(
                    f"batch_size needs five inputs or validation=.. with objective={options.objective!r},"
                    f" got {objective.n_images} inputs"
                )
            training, held_out = _held_out(source, validation, options.seed)
            objective = objective.on(training)  # the starts, too, know nothing of the data that are held out
            if options.objective == "consistent":
                sampler = sampler_of(parameters, options.blocks or "sites", threads.n_threads, options.device)
                calm = replace(control, checkpoint=Checkpoint(None))
                # Where true neighbours say nearly everything, pseudolikelihood forgets the unaries and is a bad place
                # to begin: weights learned as if sites had no neighbours stand by.
                how = (parameters, training, kernels, threads)
                alone = Objective(*how, l2=options.l2, alone=True, processes=processes)
                independent = fit_all("independent sites", alone, start, calm, with_errors=False).w
                start = fit_all("pseudolikelihood", objective, start, calm, with_errors=False).w
            begin = (start, control, sampler, independent)
            result = fit_stochastic(options.objective, objective, training, held_out, *begin)
    if store is not None and processes.first:
        store.remove()
    return parameters, result


def sampler_of(parameters: Parameters, blocks: Any, n_threads: int, device: str = "auto") -> Sampler:
    """LocPMAP as the learner sees it; the same samples on any device, but for rounding."""

    def sample(batch: Batch, w: Array, n_samples: int, seed: int, first_image: int) -> Array:
        potentials = compose(batch.features, *parameters.expand(w), potts=parameters.potts, mask=batch.mask())
        how: dict[str, Any] = {"seed": seed, "first_image": first_image, "n_threads": n_threads, "device": device}
        # Masked sites come back as -1, as void ones are marked.
        drawn = list(samples(potentials, LocPMAP(n_samples, blocks=blocks), chunk=n_samples, **how))
        flat = np.asarray(drawn, np.int16).reshape(n_samples, *batch.labels.shape)
        return np.ascontiguousarray(np.moveaxis(flat, 0, 2))

    return sample


def _held_out(source: Source, validation: Source | None, seed: int) -> tuple[list[Batch], list[Batch]]:
    training = list(source if isinstance(source, list) else Spool(iter(source)))
    training, held_out = split(training, HELD_OUT_SHARE, seed) if validation is None else (training, list(validation))
    if not all(sum(batch.weight() for batch in part) > 0 for part in (training, held_out)):
        raise InputError("there are too few labelled sites to hold some out, expected more data or validation=..")
    return training, held_out


def _fingerprint(objective: Objective, validation: Source | None, options: Options) -> dict[str, Any]:
    """What two fits must share for one to go on where the other stopped."""
    return {
        "objective": options.objective,
        "blocks": repr(options.blocks),
        "l2": options.l2,
        "seed": options.seed,
        "batch_size": options.batch_size,
        "tolerance": options.tolerance,
        "parameters": json.loads(json.dumps(asdict(objective.parameters))),  # as it comes back from a file
        "labels": digest_of(objective.source, options.processes),
        "scales": [float(f"{scale:.6g}") for scale in objective.scales],  # rounding differs by number of processes
        "validation": None if validation is None else digest_of(validation, options.processes),
    }
