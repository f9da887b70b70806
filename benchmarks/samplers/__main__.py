"""Measure samplers and write docs/samplers.md: ``python -m benchmarks.samplers run --record``, then ``page``."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.report import join_record
from benchmarks.samplers.bounds import bounds_of
from benchmarks.samplers.models import CASES, LEARNED, Case, Learned
from benchmarks.samplers.others import coupling_from_the_past, dmala, gibbs_with_gradients
from benchmarks.samplers.page import PAGE, RECORD, write_page
from locpmap.result import Status

MOST = 10**9 // 4 * 4  # samples; the time limit ends the run
OPTIONS: dict[str, Any] = {"n_samples": MOST, "n_chains": 4, "burn_in": 20, "probability": "conditional"}
OURS: dict[str, Any] = {
    "LocPMAP, votes": lp.LocPMAP(MOST, probability="votes"),
    "LocPMAP, conditional": lp.LocPMAP(MOST),
    "LocPMAP, rows+columns": lp.LocPMAP(MOST, "rows+columns"),
    "LocPMAP, rows, joint noise": lp.LocPMAP(MOST, "rows", line_noise="joint"),
    "Gibbs, sites": lp.Gibbs(**OPTIONS),
    "Gibbs, rows+columns": lp.Gibbs(blocks="rows+columns", **OPTIONS),
    "Gibbs, trees": lp.Gibbs(blocks="trees", **OPTIONS),
    "Gibbs, strips of 8": lp.Gibbs(blocks="strips:8", **OPTIONS),
    "Gibbs, trees, 8 temperatures": lp.Gibbs(blocks="trees", tempering=8, **OPTIONS),
    "Swendsen-Wang": lp.Gibbs(blocks="clusters", **OPTIONS),
    "perturb and max-product": lp.PerturbAndMaxProduct(MOST),
    "perturb and MAP": lp.PerturbAndMAP(MOST),
}
OTHERS: dict[str, Callable[[lp.Potentials, float, int], Any]] = {
    "Gibbs-with-gradients": gibbs_with_gradients,
    "DMALA": dmala,
    "coupling from the past": coupling_from_the_past,
}

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def measured(name: str, potentials: lp.Potentials, exact: Any, seconds: float, seed: int) -> dict[str, Any]:
    """Return the seconds, the error and whether chains disagree, of one run; errors are None without an estimate."""
    began = time.perf_counter()
    if name in OURS:
        result = lp.infer(potentials, OURS[name], seed=seed, max_seconds=seconds)
        one, not_mixed = result.probability[..., 1], result.status is Status.NOT_MIXED
    else:
        found, not_mixed = OTHERS[name](potentials, seconds, seed), False
        one = None if found is None else found.reshape(exact.shape)
    error = None if one is None else float(np.abs(one - exact).mean())
    return {"seconds": time.perf_counter() - began, "error": error, "not_mixed": not_mixed}


def applies(name: str, potentials: lp.Potentials) -> bool:
    """Return whether a sampler accepts the model: three need an attractive one."""
    attractive = potentials.pairwise.least_weight >= 0
    return attractive or name not in ("Swendsen-Wang", "perturb and MAP", "coupling from the past")


def solved(case: Case | Learned, seed: int) -> dict[str, Any]:
    """Return the rows of all samplers on the models of a case: means over models, for each budget."""
    runs: dict[str, list[list[dict[str, Any]]]] = {}
    for number in range(case.n_models):
        potentials = case.potentials(number)
        exact = lp.infer(potentials, "exact").probability[..., 1]
        typer.echo(f"{case.name}, model {number}")
        for name in (*OURS, *OTHERS):
            if not applies(name, potentials):
                continue
            if name in OURS:
                lp.infer(potentials, OURS[name], max_seconds=0)  # compiles the kernels
            found = [measured(name, potentials, exact, seconds, seed + number) for seconds in case.budgets]
            runs.setdefault(name, []).append(found)
            typer.echo(f"  {name:30} {[one['error'] and round(one['error'], 4) for one in found]}")
    rows = {name: {key: _mean(found, key) for key in ("seconds", "error", "not_mixed")} for name, found in runs.items()}
    return {**asdict(case), "budgets": list(case.budgets), "samplers": rows}


def _mean(runs: list[list[dict[str, Any]]], key: str) -> list[Any]:
    """Return means over models for every budget; None if a model has no estimate.  Chains must agree on all models."""
    columns = list(zip(*([one[key] for one in run] for run in runs), strict=True))
    if key == "not_mixed":
        return [any(values) for values in columns]
    return [None if None in values else float(np.mean(values)) for values in columns]


@app.command()
def run(
    seed: int = 0,
    case: Annotated[list[str] | None, typer.Option(help="Only cases whose name contains this; all by default.")] = None,
    learned: Annotated[bool, typer.Option(help="Learned models instead of random ones; needs LOCPMAP_DATA.")] = False,
    record: Annotated[bool, typer.Option(help="Add to benchmarks/results/samplers.json.")] = False,
) -> None:
    """Measure all samplers on all models of a kind, about twenty minutes."""
    here = machine.machine()
    models: tuple[Case | Learned, ...] = LEARNED if learned else CASES
    chosen = [one for one in models if case is None or any(part in one.name for part in case)]
    found = {one.name: solved(one, seed) for one in chosen}
    if record:
        origin = machine.provenance("benchmarks.samplers", seed, here)
        join_record(RECORD, "learned" if learned else "random", {"cases": found, "origin": origin})


@app.command()
def bounds(seed: int = 0, record: Annotated[bool, typer.Option(help="Add to the record.")] = False) -> None:
    """Compute upper bounds and exact values for one random model of every kind, about two minutes."""
    here, found = machine.machine(), {}
    for case in CASES:
        found[case.name] = bounds_of(case.potentials(0), seed)
        typer.echo(f"{case.name}: {found[case.name]}")
    if record:
        origin = machine.provenance("benchmarks.samplers", seed, here)
        join_record(RECORD, "bounds", {"cases": found, "origin": origin})


@app.command()
def page() -> None:
    """Write the tables of docs/samplers.md and its figure from the record."""
    write_page(json.loads(RECORD.read_text()), PAGE)


if __name__ == "__main__":
    app()
