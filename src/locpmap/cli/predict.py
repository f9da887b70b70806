"""``locpmap predict``: label the inputs in folders with a fitted CRF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.folders import Example, check_folder, match
from locpmap.cli.options import parse_options
from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.crf import CRF

OWN_OPTIONS = {"seed": "--seed"}
ENDINGS = ("labels.png", "png", "probability.npy", "variance.npy")


def label(
    crf: CRF, method: str, seed: int, options: dict[str, Any], folder: Path, n: int, example: Example
) -> dict[str, Any]:
    """Label input n and write its files; n keys the noise, as in `CRF.infer` of a list."""
    import numpy as np

    from locpmap.formats.arrays import write_array
    from locpmap.formats.pictures import write_label_map, write_picture

    features = example.features(crf.features)  # type: ignore[arg-type]
    result = crf.infer(features, method, seed=seed, first_image=n, **options)
    labels, picture, *soft = _targets(folder, example)
    write_label_map(labels, result.labels, crf.n_labels)
    written = [labels, picture]
    if result.probability is not None:
        for path, values in zip(soft, (result.probability, result.variance), strict=True):
            write_array(path, values.astype(np.float32))
        written += soft
    write_picture(picture, result.labels, result.probability, crf.n_labels)
    return {"name": example.stem, "status": str(result.status), "files": [str(path) for path in written]}


def _targets(folder: Path, example: Example) -> list[Path]:
    """Return the files of an input: labels and picture, and arrays if the decoder returns probabilities."""
    return [folder / f"{example.stem}.{ending}" for ending in ENDINGS]


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL.safetensors", help="Model file of `locpmap fit`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUTDIR", help="Folder for the results, created if missing.")
    ],
    unary: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of unary features, as for fit.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of images, as for fit.")] = None,
    method: Annotated[str, typer.Option("--method", "-m", metavar="NAME", help="Decoder; see below.")] = "locpmap",
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option of the decoder.  May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random generator.")] = 0,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers share this file system.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Label the inputs in folders with a fitted CRF.

    Writes NAME.labels.png (palette indices; 16-bit grey for more than 256 labels), NAME.probability.npy and
    NAME.variance.npy (H, W, labels), and NAME.png, a picture of all three.  Decoders without probabilities
    write labels and their picture only.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.cli.scheduling import open_workers
    from locpmap.crf import CRF
    from locpmap.inference.api import configure
    from locpmap.scale.workers import each, value_of

    options = parse_options(method, option or (), OWN_OPTIONS)
    configure(method, options, arguments=())
    crf = CRF.load(model)
    _check_folders(crf, model, unary, images)
    here = Path.cwd() if scheduler is not None else Path()  # workers may have another working directory
    examples = match(*(None if folder is None else here / folder for folder in (unary, images)))
    _prepare(output, model, examples)
    job = partial(label, crf, method, seed, options, here / output)
    done: dict[int, dict[str, Any]] = {}
    with (
        open_workers(scheduler, 1) as pool,
        ProgressBar(f"{method} of {len(examples)} inputs", hidden=as_json) as bar,
        closing(each(pool, enumerate(examples), lambda numbered: partial(job, *numbered))) as ended,
    ):
        for (n, _), future in ended:
            done[n] = value_of(future)
            bar.update(len(done), len(examples))
    inputs = [done[n] for n in sorted(done)]
    report = {"model": str(model), "method": method, "seed": seed, "output": str(output), "inputs": inputs}
    typer.echo(json.dumps(report) if as_json else _table(report))


def _check_folders(crf: CRF, model: Path, unary: Path | None, images: Path | None) -> None:
    """Raise unless exactly the folders that the model's features need are given."""
    from locpmap.features import GivenUnary, ImageFeatures

    extract = crf.features
    if not isinstance(extract, ImageFeatures | GivenUnary):
        raise InputError(f"{model} was fitted to features of your own, expected a model file of `locpmap fit`")
    needed = {"--unary": False, "--images": True}
    if isinstance(extract, GivenUnary):
        needed = {"--unary": True, "--images": extract.needs_image}
    for name, folder in (("--unary", unary), ("--images", images)):
        if needed[name] != (folder is not None):
            came = "is missing" if needed[name] else "is given"
            expected = " and ".join(name for name, need in needed.items() if need)
            raise InputError(f"{name} {came}, expected {expected} for {model}, as for its fit")


def _prepare(output: Path, model: Path, examples: Sequence[Example]) -> None:
    """Create the folder; raise if a target is also an input or the target of two inputs."""
    from locpmap.formats.atomic import checked_target

    inputs = [path for example in examples for path in example.paths]
    check_folder(output, inputs)
    targets: set[Path] = set()
    for path in (path for example in examples for path in _targets(output, example)):
        if path in targets:
            raise InputError(f"{path} would be written for two inputs, expected names that do not end in .labels")
        targets.add(path)
    output.mkdir(parents=True, exist_ok=True)
    for path in targets:
        checked_target(path, *((model, *inputs) if path.exists() else ()))


def _table(report: dict[str, Any]) -> str:
    inputs = report["inputs"]
    ends: dict[str, int] = {}
    for each in inputs:
        ends[each["status"]] = ends.get(each["status"], 0) + 1
    rows = {
        "method": report["method"],
        "status": "; ".join(f"{status} ({count} inputs)" for status, count in ends.items()),
        "written": f"{sum(len(each['files']) for each in inputs)} files in {report['output']}",
    }
    return "\n".join(f"{name:<14} {value}" for name, value in rows.items())
