"""``locpmap infer``: decode a model in UAI format."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.options import DecoderOptions, DeviceOption, JsonOption, MethodOption, SeedOption, parse_options
from locpmap.errors import InputError, InputTypeError, unknown

if TYPE_CHECKING:
    from locpmap.result import Result

# Decoding arguments that are options of the command, not of a decoder.
OWN_OPTIONS = {
    "seed": "--seed",
    "backend": "--backend",
    "device": "--device",
    "max_seconds": "--max-seconds",
    "n_threads": "--threads",
    "threads": "--threads",
}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        # Not an InputError: click replaces the message of a ValueError.
        raise InputTypeError(f"--max-seconds is {text!r}, expected a number of seconds") from None


def infer(
    model: Annotated[Path, typer.Argument(metavar="MODEL.uai", help="Pairwise model in UAI format.")],
    method: MethodOption = "locpmap",
    evidence: Annotated[Path | None, typer.Option(metavar="FILE", help="Observed labels in UAI format.")] = None,
    seed: SeedOption = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File for the probabilities (MAR) or, if the decoder has none, the labels (MPE).  With - they go to"
            " standard output, and the report to standard error.  The probabilities of locpmap and other decoders"
            " that perturb are those of perturbed maxima, not the model's marginals.",
        ),
    ] = None,
    write: Annotated[
        str | None, typer.Option(metavar="mar|mpe", help="Content of --output: probabilities (mar) or labels (mpe).")
    ] = None,
    option: DecoderOptions = None,
    max_seconds: Annotated[
        float | None, typer.Option(parser=_number, metavar="SECONDS", help="Time limit.  Default: none.")
    ] = None,
    backend: Annotated[str, typer.Option(metavar="auto|reference|numba|triton", help="Backend.")] = "auto",
    device: DeviceOption = "auto",
    threads: Annotated[int | None, typer.Option(help="Number of threads.  Default: all cores.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Decode a model in UAI format and print the score of its labels."""
    from locpmap.cli.progress import ProgressBar
    from locpmap.formats.atomic import checked_target, write_text
    from locpmap.formats.uai import format_mar, format_mpe, read_model
    from locpmap.inference import infer as decode
    from locpmap.inference.api import configure

    decoder = configure(method, parse_options(method, option or (), OWN_OPTIONS), arguments=())
    if write is not None and write.lower() not in ("mar", "mpe"):
        raise unknown("value of --write", write, ("mar", "mpe"))
    if write is not None and output is None:
        raise InputError(f"--write {write} needs a file to write to: give -o FILE, or -o - for standard output")
    kind = None if output is None else (write or ("mar" if decoder.has_probability else "mpe")).upper()
    if kind == "MAR" and not decoder.has_probability:
        raise InputError(f"--write {write} needs probabilities, which {decoder.name} does not return: use mpe")
    piped = output == Path("-")
    if output is not None and not piped:
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
    if output is not None:
        text = format_mar(result.probability, cardinalities) if kind == "MAR" else format_mpe(result.labels)
        if piped:
            typer.echo(text, nl=False)
        else:
            write_text(output, [text])
    report = _report(result, seed, output, kind)
    typer.echo(json.dumps(report, allow_nan=False) if as_json else _table(report), err=piped)


def _report(result: Result, seed: int, output: Path | None, kind: str | None) -> dict[str, Any]:
    """Return the result as ``--json`` prints it, with None for infinite values."""
    log_partition_kind = result.log_partition_kind
    return {
        "method": result.method,
        "status": str(result.status),
        "converged": result.converged,
        "score": _finite(result.score),
        "log_partition": _finite(result.log_partition),
        "log_partition_kind": None if log_partition_kind is None else str(log_partition_kind),
        "log_partition_error": _finite(result.log_partition_error),
        "bound": _finite(result.bound),
        "seconds": result.seconds,
        "n_sweeps": result.n_sweeps,
        "n_samples": result.n_samples,
        "r_hat": _finite(result.r_hat),
        "n_effective": _finite(result.n_effective),
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
    rows = {"method": report["method"], "status": report["status"]}
    rows["score"] = "-inf (forbidden)" if report["score"] is None else f"{report['score']:.10g}"
    if report["bound"] is not None:
        rows["bound"] = f"{report['bound']:.10g} (upper bound on every score)"
    if report["log_partition"] is not None:
        error = "" if report["log_partition_error"] is None else f" ± {report['log_partition_error']:.2g}"
        rows["log partition"] = f"{report['log_partition']:.10g}{error} ({report['log_partition_kind']})"
    if report["n_effective"] is not None:
        r_hat = "above any bound" if report["r_hat"] is None else f"{report['r_hat']:.3f}"
        rows["R-hat"] = f"{r_hat} ({report['n_effective']:.0f} effective samples)"
    rows["seconds"] = f"{report['seconds']:.3f}"
    if report["output"] is not None:
        rows["written"] = f"{report['output']} ({report['output_format']})"
    return "\n".join(f"{name:<14} {value}" for name, value in rows.items())
