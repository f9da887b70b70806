"""``locpmap infer``: decode a UAI model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from locpmap.errors import InputError


def infer(
    model: Annotated[Path, typer.Argument(help="A pairwise model in the UAI format.")],
    method: Annotated[str, typer.Option(help="The decoder; see `locpmap doctor` for the names.")] = "locpmap",
    evidence: Annotated[Path | None, typer.Option(help="Observed variables, in the UAI evidence format.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of all noise.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write marginals (MAR format), or labels (MPE) where a decoder has only those."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the decoder as name=value, as often as needed.")
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, reference or numba.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads; all cores by default.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this time with what there is.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Decode MODEL; print the score of the labels and, where the decoder gives one, log Z or a bound of it."""
    import locpmap
    from locpmap.cli.progress import progress_bar
    from locpmap.formats.uai import write_mar, write_mpe

    if out is not None:
        _check_output(out, [model] + ([evidence] if evidence else []))
    options = dict(_parse(text) for text in option or [])
    potentials = locpmap.read_uai(model, evidence=evidence)
    with progress_bar(method, visible=not as_json) as progress:
        result = locpmap.infer(
            potentials,
            method,
            seed=seed,
            backend=backend,
            n_threads=threads,
            max_seconds=max_seconds,
            progress=progress,
            **options,
        )
    if out is not None and result.probability is not None:
        write_mar(out, potentials, result.probability)
    elif out is not None:
        write_mpe(out, result.labels)
    facts = {
        "method": result.method,
        "status": str(result.status),
        "score": result.score,
        "log_partition": result.log_partition,
        "log_partition_kind": None if result.log_partition_kind is None else str(result.log_partition_kind),
        "n_sweeps": result.n_sweeps,
        "n_samples": result.n_samples,
        "seconds": result.seconds,
        "backend": result.backend,
        "noise": result.noise,
        "seed": seed,
        "out": None if out is None else str(out),
    }
    if as_json:
        typer.echo(json.dumps(facts | {"labels": result.labels.tolist()}))
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:>18}: {value}")


def _parse(text: str) -> tuple[str, Any]:
    """``name=value`` with a JSON value, or a plain word where it is none."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--option is {text!r}, expected name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _check_output(out: Path, inputs: list[Path]) -> None:
    """Refuse before any work what could not be written after it."""
    if any(out.exists() and path.exists() and os.path.samefile(out, path) for path in inputs):
        raise InputError(f"--out is {out}, which is an input, expected another file")
    if out.is_dir():
        raise InputError(f"--out is {out}, which is a folder, expected a file")
    folder = out.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"--out is {out}, expected a file in a folder that exists and can be written")
