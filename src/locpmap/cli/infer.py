"""``locpmap infer``: decode a model file."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.result import Result


def infer(
    model: Annotated[Path, typer.Argument(metavar="MODEL.uai", help="A pairwise model in UAI format.")],
    method: Annotated[str, typer.Option("--method", "-m", metavar="NAME", help="The decoder.")] = "locpmap",
    evidence: Annotated[Path | None, typer.Option(metavar="FILE", help="Observed labels in UAI format.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all noise.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write marginals (MAR) or, if there are none, labels (MPE)."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the decoder; may be repeated.")
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after about this time.")] = None,
    backend: Annotated[str, typer.Option(help="auto, reference or numba.")] = "auto",
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads to use; all cores by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Decode a model and print the score of the labels found."""
    from locpmap.cli.progress import ProgressBar
    from locpmap.formats.atomic import checked_target
    from locpmap.formats.uai import read_model, write_mar, write_mpe
    from locpmap.inference import infer as decode
    from locpmap.inference.api import configure

    decoder = configure(method, dict(_parse_option(text) for text in option or ()))
    if output is not None:
        checked_target(output, model, evidence)
    potentials, cardinalities = read_model(model, evidence)
    with ProgressBar(decoder.name, hidden=as_json) as bar:
        result = decode(
            potentials,
            decoder,
            seed=seed,
            backend=backend,
            device=device,
            max_seconds=max_seconds,
            n_threads=threads,
            progress=bar.update,
        )
    kind = None
    if output is not None and result.probability is not None:
        write_mar(output, result.probability, cardinalities)
        kind = "MAR"
    elif output is not None:
        write_mpe(output, result.labels)
        kind = "MPE"
    report = _report(result, seed, output, kind)
    typer.echo(json.dumps(report, allow_nan=False) if as_json else _table(report))


def _parse_option(text: str) -> tuple[str, Any]:
    """``key=value`` with a Python literal or, failing that, plain text as its value."""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise InputError(f"--option is {text!r}, expected KEY=VALUE")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return key, value


def _report(result: Result, seed: int, output: Path | None, kind: str | None) -> dict[str, Any]:
    """Everything a machine may want to know; numbers that JSON cannot express are null."""
    log_partition_kind = result.log_partition_kind
    return {
        "method": result.method,
        "status": str(result.status),
        "converged": result.converged,
        "score": _finite(result.score),
        "log_partition": _finite(result.log_partition),
        "log_partition_kind": None if log_partition_kind is None else str(log_partition_kind),
        "seconds": result.seconds,
        "n_sweeps": result.n_sweeps,
        "n_samples": result.n_samples,
        "noise": result.noise,
        "seed": seed,
        "backend": result.backend,
        "device": result.device,
        "output": None if output is None else str(output),
        "output_format": kind,
        "labels": result.labels.tolist(),
    }


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _table(report: dict[str, Any]) -> str:
    """The same for people, one line each."""
    rows = {"method": report["method"], "status": report["status"]}
    rows["score"] = "-inf (forbidden)" if report["score"] is None else f"{report['score']:.10g}"
    if report["log_partition"] is not None:
        rows["log partition"] = f"{report['log_partition']:.10g} ({report['log_partition_kind']})"
    rows["seconds"] = f"{report['seconds']:.3f}"
    if report["output"] is not None:
        rows["written"] = f"{report['output']} ({report['output_format']})"
    return "\n".join(f"{name:<14} {value}" for name, value in rows.items())
