"""``locpmap predict``: label the inputs in folders with a fitted CRF."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.folders import Example, check_folder, match
from locpmap.cli.options import (
    DecoderOptions,
    JsonOption,
    MethodOption,
    SchedulerOption,
    SeedOption,
    open_workers,
    parse_choices,
    parse_options,
)
from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.crf import CRF

OWN_OPTIONS = {"seed": "--seed"}
# What --keep chooses from, and the ending of the file.
FILES = {"labels": "labels.png", "picture": "png", "probability": "probability.npy", "variance": "variance.npy"}
DEFAULT = ("labels", "picture")


def label(
    crf: CRF,
    method: str,
    seed: int,
    options: dict[str, Any],
    folder: Path,
    keep: Sequence[str],
    n: int,
    example: Example,
) -> dict[str, Any]:
    """Label input n and write its files; n keys the noise, as in `CRF.infer` of a list."""
    import numpy as np

    from locpmap.formats.arrays import write_array
    from locpmap.formats.pictures import write_label_map, write_picture

    features = example.features(crf.features)  # type: ignore[arg-type]
    result = crf.infer(features, method, seed=seed, first_image=n, **options)
    written = _targets(folder, example, keep)
    for name, path in written.items():
        if name == "labels":
            write_label_map(path, result.labels, crf.n_labels)
        elif name == "picture":
            write_picture(path, result.labels, result.probability, crf.n_labels)
        else:
            write_array(path, getattr(result, name).astype(np.float32))
    return {"name": example.stem, "status": str(result.status), "files": [str(path) for path in written.values()]}


def _targets(folder: Path, example: Example, keep: Collection[str]) -> dict[str, Path]:
    return {name: folder / f"{example.stem}.{ending}" for name, ending in FILES.items() if name in keep}


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL.safetensors", help="Model file of `locpmap fit`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUTDIR", help="Folder for the results, created if missing.")
    ],
    unary: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of unary features, as for fit.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of images, as for fit.")] = None,
    method: MethodOption = "locpmap",
    option: DecoderOptions = None,
    keep: Annotated[
        str, typer.Option(metavar="NAMES", help=f"Files to write, separated by commas: {', '.join(FILES)}.")
    ] = ",".join(DEFAULT),
    seed: SeedOption = 0,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label the inputs in folders with a fitted CRF.

    Writes NAME.labels.png (palette indices; 16-bit grey for more than 256 labels) and NAME.png, a picture of labels,
    probability and variance.  With --keep it writes other files, such as NAME.probability.npy and NAME.variance.npy
    (H, W, labels), if the decoder returns probabilities.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.crf import CRF
    from locpmap.inference.api import configure
    from locpmap.scale.workers import each, value_of

    kept = parse_choices("--keep", keep, tuple(FILES))
    options = parse_options(method, option or (), OWN_OPTIONS)
    decoder = configure(method, options, arguments=())
    if not decoder.has_probability and not set(kept) <= set(DEFAULT):
        raise InputError(f"--keep is {keep}, but {method} returns no probabilities, expected {' or '.join(DEFAULT)}")
    crf = CRF.load(model)
    _check_folders(crf, model, unary, images)
    here = Path.cwd() if scheduler is not None else Path()  # workers may have another working directory
    examples = match(*(None if folder is None else here / folder for folder in (unary, images)))
    _prepare(output, model, examples, kept)
    job = partial(label, crf, method, seed, options, here / output, kept)
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


def _prepare(output: Path, model: Path, examples: Sequence[Example], keep: Collection[str]) -> None:
    """Create the folder; raise if a target is also an input or the target of two inputs."""
    from locpmap.formats.atomic import checked_target

    inputs = [path for example in examples for path in example.paths]
    check_folder(output, inputs)
    targets: set[Path] = set()
    for path in (path for example in examples for path in _targets(output, example, keep).values()):
        if path in targets:
            raise InputError(f"{path} would be written for two inputs, expected names that do not end in .labels")
        targets.add(path)
    output.mkdir(parents=True, exist_ok=True)
    for path in targets:
        checked_target(path, *((model, *inputs) if path.exists() else ()))


def _table(report: dict[str, Any]) -> str:
    inputs = report["inputs"]
    ends = Counter(each["status"] for each in inputs)
    rows = {
        "method": report["method"],
        "status": "; ".join(f"{status} ({count} inputs)" for status, count in ends.items()),
        "written": f"{sum(len(each['files']) for each in inputs)} files in {report['output']}",
    }
    return "\n".join(f"{name:<14} {value}" for name, value in rows.items())
