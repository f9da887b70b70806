"""The runner: fits every model and runs every decoder, at every level and with every seed.

Finished stages are stored under ``stages`` in the run's folder, so that an interrupted run resumes and gives the same
numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from locpmap import __version__
from locpmap.errors import InputError, unknown, whole_number
from locpmap.learning import Processes
from locpmap_paper.experiments import record
from locpmap_paper.experiments.ablation import Cell, ablate, measure_cell, n_cells
from locpmap_paper.experiments.catalogue import catalogue, choose
from locpmap_paper.experiments.decoders import LISTED, Listed, listed
from locpmap_paper.experiments.experiment import Case, Experiment
from locpmap_paper.experiments.fits import ALONE, StoredFits
from locpmap_paper.experiments.joint_training import help_train
from locpmap_paper.experiments.model import Model
from locpmap_paper.experiments.parallel import compute_cases
from locpmap_paper.experiments.pictures import N_PICTURES, draw_pictures, write_pictures
from locpmap_paper.experiments.progress import RunProgress, Silent
from locpmap_paper.experiments.protocol import known_experiment
from locpmap_paper.experiments.rows import Subject, make_row
from locpmap_paper.experiments.stages import Stages, digest

DEVICES = ("auto", "cpu", "cuda")
# Rough durations of stages of the demonstration on two cores, for the remaining time.
FIT_SECONDS, PICTURE_SECONDS, CELL_SECONDS = 5.0, 1.0, 0.1
DEMO_IMAGES = 200


def run(
    experiment: str,
    folder: Any,
    *,
    seeds: Sequence[int] | None = None,
    fast: bool = False,
    full: bool = False,
    train: bool = False,
    device: str = "auto",
    data: Any = None,
    levels: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    progress: RunProgress | None = None,
    command: str = "",
    jobs: int = 1,
    scheduler: Any = None,
    processes: Processes = ALONE,
) -> Path:
    """Run an experiment and write ``result.json`` and ``pictures.npz``.

    Args:
        experiment (str): "digits", "mnist", "caltech" or "stanford".
        folder (str or Path): Output folder, created if needed.  A folder of another experiment raises an error.
        seeds (sequence of int, optional): Seeds of the noise (for scenes: of the split) and of learning; 0, 1, 2 by
            default (digits: 0).
        fast (bool, default False): Whether to do a smoke run with few images, samples and sweeps.  Its numbers are
            not meaningful.
        full (bool, default False): Whether to run all models and decoders of digits on 300 test images, not only those
            of the demonstration.
        train (bool, default False): Whether to train networks whose weights are bundled (digits).
        device (str, default "auto"): "auto", "cpu" or "cuda", for networks and for decoders with GPU kernels.
        data (str or Path, optional): Folder with the data; `locpmap_paper.data.folder()` by default.
        levels (sequence of str, optional): Noise levels, by default "variance" and "amplitude" (digits: "variance").
            For scenes, the kinds of unaries, by default "boosted", "deeplab" and "pretrained".
        models (sequence of str, optional): Names of models; by default all of the experiment.
        progress (RunProgress, optional): Receives the progress of the run.
        command (str, default ""): Command to record as the origin of the run.
        jobs (int, default 1): Number of processes, each of which computes one level and seed.  The recorded seconds
            are less comparable if it is more than 1.
        scheduler (str or distributed.Client, optional): Address or client of a Dask scheduler whose workers compute
            the levels and seeds.  They must see the same folders.
        processes (Processes): Processes that train networks together, from `locpmap.learning.joined_processes`.  The
            first one does everything else.

    Returns:
        Path: The path of ``result.json``.

    Raises:
        InputError: If an argument is invalid, or the folder or the data do not fit the experiment.
    """
    whole_number("jobs", jobs, 1, 2**31 - 1)
    shared = jobs > 1 or scheduler is not None
    if shared and processes.size > 1:
        raise InputError(f"jobs or scheduler is given to each of {processes.size} processes, expected one or the other")
    plan = _plan(experiment, fast, full, train, levels, seeds, models)
    _check_device(device, elsewhere=scheduler is not None)
    loaded = plan.experiment.load(data)
    target = Path(folder)
    stages = Stages(target / "stages")
    if not processes.first:
        help_train(plan.experiment, loaded, stages, processes.tell(""), device, processes)
        return target / "result.json"
    target.mkdir(parents=True, exist_ok=True)
    guard = processes.tell(_claim(target, stages, plan.experiment, record.data_files(loaded)))
    whole = _Run(plan, loaded, target, stages, guard, device, progress or Silent(), command, processes)
    if shared:
        how = {"experiment": experiment, "fast": fast, "full": full, "train": train, "models": models}
        how |= {"seeds": plan.seeds}
        here = {"folder": target.resolve(), "data": None if data is None else Path(data).resolve()}
        arguments = {**how, **here, "device": device, "guard": guard}
        cases = list(itertools.product(plan.levels, plan.seeds))
        cost = sum(plan.costs) / len(cases)
        compute_cases(_make_case, arguments, cases, jobs, scheduler, whole.progress, cost)
    path = whole.finish()
    processes.tell("")  # no further networks to train
    return path


def _check_device(device: str, *, elsewhere: bool) -> None:
    """Reject an unknown or missing device before anything is learned; remote workers check their own."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cuda" and not elsewhere:
        from locpmap.nn import choose_device

        choose_device(device)


def _plan(
    experiment: str,
    fast: bool,
    full: bool,
    train: bool,
    levels: Sequence[str] | None,
    seeds: Sequence[int] | None,
    models: Sequence[str] | None,
) -> Plan:
    protocol = known_experiment(experiment, full)
    protocol = replace(protocol.smoke() if fast else protocol, train=train)
    chosen = [replace(m, decoders=protocol.decoders.get(m.name, m.decoders)) for m in choose(protocol, models)]
    plan = Plan(protocol, chosen, _levels(protocol, levels), _seeds(protocol, seeds))
    for level in plan.levels:
        if not plan.models_at(level):
            names = ", ".join(model.name for model in chosen)
            raise InputError(f"{protocol.name} has no model {names} at level {level}, expected models of that level")
    return plan


def _make_case(arguments: dict[str, Any], level: str, seed: int) -> None:
    """Compute the stages of one case in a process of its own."""
    how = {name: arguments[name] for name in ("experiment", "fast", "full", "train", "seeds", "models")}
    plan = _plan(levels=[level], **how)
    data, folder = plan.experiment.load(arguments["data"]), arguments["folder"]
    rest = (arguments["guard"], arguments["device"], Silent(), "", ALONE)
    part = _Run(plan, data, folder, Stages(folder / "stages"), *rest)
    part.make(plan.experiment.case(data, level, seed))


@dataclass(frozen=True)
class Plan:
    """The models, levels and seeds of a run."""

    experiment: Experiment
    models: list[Model]
    levels: list[str]
    seeds: list[int]

    @cached_property
    def costs(self) -> list[float]:
        """The expected seconds of all stages in their order; a decoder's kernels are compiled on first use."""
        experiment, costs, compiled = self.experiment, [], set()
        for level, seed in itertools.product(self.levels, self.seeds):
            for model in self.models_at(level):
                costs.append(FIT_SECONDS)
                for decoder in listed(model.decoders):
                    share = experiment.n_given(decoder, experiment.n_test) / DEMO_IMAGES
                    first = decoder.method not in compiled
                    costs.append(share * decoder.run_seconds + first * decoder.compile_seconds)
                    compiled.add(decoder.method)
                if seed == self.seeds[0]:
                    costs.append(PICTURE_SECONDS)
                    costs += (n_cells(experiment.fast, experiment.blocks) if self.ablates(model) else 0) * [
                        CELL_SECONDS
                    ]
        return costs

    def models_at(self, level: str) -> list[Model]:
        """Return the models that exist at a level."""
        return [model for model in self.models if model.levels is None or level in model.levels]

    def ablates(self, model: Model) -> bool:
        """Return whether the ablation is run on a model."""
        return model.name in self.experiment.ablated


@dataclass
class _Run:
    plan: Plan
    data: Any
    folder: Path
    stages: Stages
    guard: str
    device: str
    progress: RunProgress
    command: str
    processes: Processes
    done: int = 0
    fits: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)
    ablation: list[dict[str, Any]] = field(default_factory=list)
    pictures: dict[str, Any] = field(default_factory=dict)

    def finish(self) -> Path:
        """Compute missing stages and write the result."""
        experiment, plan = self.plan.experiment, self.plan
        started = self.stages.value("started", {"guard": self.guard}, record.now)
        sigma: dict[str, list[float]] = {level: [] for level in plan.levels}
        for case in self._cases():
            sigma[case.level] += [] if case.sigma is None else [case.sigma]
            self.make(case)
        write_pictures(self.folder / "pictures.npz", self.pictures)
        used = {name for model in plan.models for name in model.decoders}
        path = self.folder / "result.json"
        result = {
            "schema": record.SCHEMA,
            "experiment": experiment.name,
            "title": experiment.title,
            "fast": experiment.fast,
            "provenance": record.provenance(self.command, started, record.data_files(self.data)),
            "protocol": record.describe_protocol(experiment, self.data, plan.seeds),
            "levels": [
                {"name": level, "says": experiment.known_levels[level], "sigma": sigma[level]} for level in plan.levels
            ],
            "models": [record.describe_model(model) for model in plan.models],
            "decoders": [record.describe_decoder(d, experiment.fast) for d in LISTED if d.name in used],
            "fits": self.fits,
            "rows": self.rows,
            "ablation": self.ablation,
            "curves": self.curves,
        }
        record.write_result(path, result)
        return path

    def _cases(self) -> Iterator[Case]:
        for level in self.plan.levels:
            for seed in self.plan.seeds:
                yield self.plan.experiment.case(self.data, level, seed)

    def make(self, case: Case) -> None:
        """Compute the missing stages of one case."""
        known = catalogue(self.plan.experiment)
        fits = StoredFits(self.stages, case, known, self.device, self.progress.step, self.guard, self.processes)
        if case.seed == self.plan.seeds[0]:
            shown = case.test.first(N_PICTURES)
            self.pictures |= {f"{case.level}/input": case.images(shown), f"{case.level}/truth": shown.truth}
        for model in self.plan.models_at(case.level):
            self._model(case, model, fits)

    def _model(self, case: Case, model: Model, fits: StoredFits) -> None:
        names = {"level": case.level, "seed": case.seed, "model": model.name}
        self._begin(case, model.name, "learning")
        fit = fits.record(model.name)
        self.fits.append({**names, "seconds": fit["seconds"], "details": fit["details"]})
        decoders = listed(model.decoders)
        most = max(self._n_given(case, decoder) for decoder in decoders)
        subject = Subject(case, lambda: fits.fitted(model.name), most, self.plan.experiment.fast, self.device)
        settings = {"guard": self.guard, **names, "weights": fit["sha256"]}
        for decoder in decoders:
            self._row(subject, decoder, names, settings)
        if case.seed != self.plan.seeds[0]:
            return
        self._begin(case, model.name, "pictures")
        n_pictures, names_shown = min(N_PICTURES, most), self.plan.experiment.shown
        shown = [decoder for decoder in decoders if names_shown is None or decoder.name in names_shown]
        settled = {**settings, "n_images": n_pictures, "decoders": [self._how(decoder) for decoder in shown]}
        drawn = self.stages.arrays(
            f"{case.name}/{model.name}/pictures", settled, lambda: draw_pictures(subject, shown, n_pictures)
        )
        self.pictures |= {f"{case.level}/{model.name}/{name}": drawn[name] for name in sorted(drawn)}
        if self.plan.ablates(model):
            self._ablate(subject, names, settings, model)

    def _row(self, subject: Subject, decoder: Listed, names: dict[str, Any], settings: dict[str, Any]) -> None:
        self._begin(subject.case, names["model"], decoder.title)
        n_images = self._n_given(subject.case, decoder)
        stage = f"{subject.case.name}/{names['model']}/{decoder.name}"
        settled = {**settings, "n_images": n_images, "decoder": self._how(decoder)}
        stored = self.stages.value(stage, settled, lambda: make_row(subject, decoder, n_images, self.progress.step))
        self.rows.append({**names, "decoder": decoder.name, **stored["row"]})
        if stored["risk"] is not None and subject.case.seed == self.plan.seeds[0]:
            curve = {"calibration": stored["calibration"], "risk": stored["risk"]}
            self.curves.append({**names, "decoder": decoder.name, **curve})

    def _ablate(self, subject: Subject, names: dict[str, Any], settings: dict[str, Any], model: Model) -> None:
        n_images = min(self.plan.experiment.n_ablation, subject.most)

        def evaluate(cell: Cell) -> dict[str, Any]:
            self._begin(subject.case, model.name, f"ablation, {cell.name}")
            stage = f"{subject.case.name}/{model.name}/ablation/{cell.name}"
            stored: dict[str, Any] = self.stages.value(
                stage, {**settings, "n_images": n_images}, lambda: measure_cell(subject, cell, n_images)
            )
            return stored

        experiment = self.plan.experiment
        self.ablation += [{**names, **cell} for cell in ablate(experiment.fast, experiment.blocks, evaluate)]

    def _n_given(self, case: Case, decoder: Listed) -> int:
        return self.plan.experiment.n_given(decoder, len(case.test))

    def _how(self, decoder: Listed) -> list[Any]:
        return [decoder.name, decoder.method, decoder.settings(self.plan.experiment.fast), list(decoder.choices)]

    def _begin(self, case: Case, model: str, what: str) -> None:
        costs = self.plan.costs
        title = f"{case.level}, seed {case.seed}, {model}: {what}"
        self.progress.stage(sum(costs[: self.done]), sum(costs), title, costs[self.done])
        self.done += 1


def _claim(folder: Path, stages: Stages, experiment: Experiment, files: list[dict[str, Any]]) -> str:
    """Reject a folder of another run; return the digest of all settings that the stages depend on."""
    if (folder / "result.json").exists() and not stages.folder.exists():
        raise InputError(f"{folder} contains a result.json without its stages, expected another folder")
    identity = {"experiment": experiment.name, "fast": experiment.fast, "data": files}
    stored = stages.find("identity", {})
    if stored is not None and stored != identity:
        same = (stored["experiment"], stored["fast"]) == (experiment.name, experiment.fast)
        other = "other data" if same else f"the experiment {stored['experiment']}{' --fast' if stored['fast'] else ''}"
        wanted = f"{experiment.name}{' --fast' if experiment.fast else ''}"
        raise InputError(f"{folder} holds a run of {other}, expected a new folder or one of {wanted}")
    stages.store("identity", {}, identity)
    sizes = [*experiment.setting.values(), experiment.n_train, experiment.n_test, experiment.train]
    return digest({**identity, "sizes": sizes, "version": __version__})


def _levels(experiment: Experiment, levels: Sequence[str] | None) -> list[str]:
    if not levels:
        return list(experiment.levels)
    for level in levels:
        if level not in experiment.known_levels:
            raise unknown("level", level, experiment.known_levels)
    return [level for level in experiment.known_levels if level in levels]


def _seeds(experiment: Experiment, seeds: Sequence[int] | None) -> list[int]:
    if seeds is None:
        return list(range(experiment.n_seeds))
    plain = [whole_number("seeds", seed, 0, 2**31 - 1) for seed in seeds]
    if not plain or len(set(plain)) < len(plain):
        raise InputError(f"seeds is {plain}, expected one or more different seeds")
    return plain
