"""``locpmap predict``: label the inputs in folders with a fitted CRF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.folders import Example, match
from locpmap.cli.options import parse_options
from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.crf import CRF
    from locpmap.features import GivenUnary, ImageFeatures
    from locpmap.result import Result

OWN_OPTIONS = {"seed": "--seed"}


@dataclass(frozen=True)
class Outputs:
    """Files written for one input; the arrays only if the decoder returns probabilities."""

    labels: Path
    probability: Path
    variance: Path
    picture: Path

    @classmethod
    def of(cls, folder: Path, stem: str) -> Outputs:
        """Return the paths for an input by its stem."""
        names = (f"{stem}.labels.png", f"{stem}.probability.npy", f"{stem}.variance.npy", f"{stem}.png")
        return cls(*(folder / name for name in names))

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files."""
        return self.labels, self.probability, self.variance, self.picture

    def write(self, result: Result, n_labels: int) -> list[str]:
        """Write each file completely or not at all, and return their names."""
        import numpy as np

        from locpmap.formats.arrays import write_array
        from locpmap.formats.pictures import write_label_map, write_picture

        write_label_map(self.labels, result.labels, n_labels)
        written = [self.labels, self.picture]
        if result.probability is not None:
            write_array(self.probability, result.probability.astype(np.float32))
            write_array(self.variance, result.variance.astype(np.float32))
            written += [self.probability, self.variance]
        write_picture(self.picture, result.labels, result.probability, n_labels)
        return [str(path) for path in written]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Job that labels one input."""

    crf: CRF
    extract: ImageFeatures | GivenUnary
    method: str
    seed: int
    options: dict[str, Any]
    folder: Path

    def __call__(self, n: int, example: Example) -> dict[str, Any]:
        """Label input n and write its files; n keys the noise, as in `CRF.infer` of a list."""
        features = example.features(self.extract)
        result = self.crf.infer(features, self.method, seed=self.seed, first_image=n, **self.options)
        written = Outputs.of(self.folder, example.stem).write(result, self.crf.n_labels)
        return {"name": example.stem, "status": str(result.status), "files": written}


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
    extract = _features(crf, model, unary, images)
    examples = match(unary, images)
    folder = _prepared(output, model, examples)
    if scheduler is not None:  # workers may have another working directory
        folder, examples = folder.resolve(), [example.resolved() for example in examples]
    job = Prediction(crf, extract, method, seed, options, folder)
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


def _features(crf: CRF, model: Path, unary: Path | None, images: Path | None) -> ImageFeatures | GivenUnary:
    """Return the model's feature extractor; raise unless exactly the folders that it needs are given."""
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
    return extract


def _prepared(output: Path, model: Path, examples: Sequence[Example]) -> Path:
    """Create and return the folder; raise if a target is also an input or the target of two inputs."""
    from locpmap.formats.atomic import checked_target

    inputs = [model, *(path for example in examples for path in example.paths)]
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, expected a folder for the results")
    if any(output.resolve() == path.parent.resolve() for path in inputs[1:]):
        raise InputError(f"{output} is also an input, expected another folder for the results")
    targets = [path for example in examples for path in Outputs.of(output, example.stem).paths]
    owner: set[Path] = set()
    for path in targets:
        if path in owner:
            raise InputError(f"{path} would be written for two inputs, expected names that do not end in .labels")
        owner.add(path)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be created: {error.strerror}") from None
    for path in targets:
        checked_target(path, *(inputs if path.exists() else ()))
    return output


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
