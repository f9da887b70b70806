"""``locpmap refine``: a network's scores and the image, to clean labels with an honest uncertainty."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.refine_inputs import Content, pairs_of
from locpmap.cli.refine_outputs import INTERVAL, Outputs
from locpmap.errors import InputError, LocpmapError

if TYPE_CHECKING:
    from locpmap.refining import Refiner
    from locpmap.result import Result

BAD_INPUT = 2
Progress = Callable[[int, int], None]
Summary = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Everything that the results depend on beside the inputs; names as in :func:`locpmap.refine`."""

    layout: str
    scores: str
    stride: float | None
    strength: float
    temperature: float
    n_samples: int
    blocks: str
    seed: int
    device: str

    def check(self, refiner: Refiner) -> None:
        """Try them on a tiny image, so that a wrong one is named once, and before anything is read or written."""
        import numpy as np

        from locpmap.inference import LocPMAP

        LocPMAP(self.n_samples)
        shape = (20, 8, 8) if self.layout == "khw" else (8, 8, 20)
        options = {**asdict(self), "n_samples": 1}
        refiner.refine(np.zeros((8, 8)), np.full(shape, 0.05, np.float32), **options)


def refine(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="PNG, JPEG, .npy or GeoTIFF; or a folder of them.")],
    logits: Annotated[
        Path,
        typer.Argument(
            metavar="LOGITS", help="A network's scores: .npy, .npz, .safetensors or GeoTIFF; or a folder of them."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUTDIR", help="Folder for the results, made if it is not there.")
    ],
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What Refiner.save wrote; by default what comes along."),
    ] = None,
    layout: Annotated[str, typer.Option(help="Order of the scores' axes: auto, hwk or khw.")] = "auto",
    scores: Annotated[str, typer.Option(help="What they are: auto, logits or probabilities.")] = "auto",
    stride: Annotated[
        float | None, typer.Option(help="Pixels to one score, if coarse scores have been resized already.")
    ] = None,
    strength: Annotated[float, typer.Option(help="Factor of the pairwise weights; 0 is the network alone.")] = 1.0,
    temperature: Annotated[float, typer.Option(help="Above 1 less sure, below 1 surer.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Label maps to draw.")] = 50,
    blocks: Annotated[str, typer.Option(help="Of LocPMAP: sites, rows, columns, rows+columns.")] = "sites",
    seed: Annotated[int, typer.Option(help="Seed of all noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Inputs of folders at once; each holds its arrays in memory.")] = 2,
    tiff: Annotated[bool, typer.Option("--tiff", help="Write 16-bit TIFF maps as well.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do finished inputs again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Refine a segmentation, or all those of two folders whose files are matched by name.

    Writes NAME.labels.png (palette entries), NAME.probability.npy and NAME.variance.npy (H, W, labels),
    NAME.entropy.npy (H, W), NAME.overlay.png (colours fade where labels are unsure) and NAME.json (settings, and the
    area of each label with its uncertainty).  With --tiff, and for GeoTIFF images with their georeference, also .tif of
    the labels, and of their probability, variance and entropy in 16 bits.  Pixels without data get 255.

    Inputs that are finished, with the same settings, are passed over when the command is run again.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.refining import Refiner

    refiner = Refiner.load(model)
    settings = Settings(layout, scores, stride, strength, temperature, samples, blocks, seed, device)
    settings.check(refiner)
    pairs = pairs_of(image, logits)
    outputs = [Outputs(output, pair, tiff) for pair in pairs]
    _prepare(output, outputs, alone=not image.is_dir(), model=model)
    errors: dict[str, str] = {}
    run = Run(refiner, settings, {**asdict(settings), "model": _hash(model), "tiff": tiff}, force)
    with ProgressBar("refining" if len(pairs) == 1 else f"refining {len(pairs)} inputs", hidden=as_json) as bar:
        if len(pairs) == 1:
            done = [run.one(outputs[0], bar.update)]
        else:
            done, errors = run.all(outputs, jobs, bar.update)
    failed = [{"name": name, "error": sentence} for name, sentence in sorted(errors.items())]
    if as_json:
        typer.echo(json.dumps({"output": str(output), "inputs": done, "errors": failed}))
    else:
        _print(done, output)
    for each in failed:
        typer.echo(f"locpmap: {each['error']}", err=True)
    if failed:
        raise typer.Exit(BAD_INPUT)


@dataclass(frozen=True)
class Run:
    """One call of the command."""

    refiner: Refiner
    settings: Settings
    recorded: dict[str, Any]  # the settings, as they stand in records
    force: bool

    def all(self, outputs: Sequence[Outputs], jobs: int, progress: Progress) -> tuple[list[Summary], dict[str, str]]:
        """Summaries in the order of the inputs, and one sentence for each input that failed."""
        done: dict[str, Summary] = {}
        errors: dict[str, str] = {}
        with _pool(jobs) as pool:
            futures: dict[Future[Summary], str] = {pool.submit(self.one, each): each.pair.name for each in outputs}
            for future in as_completed(futures):
                name = futures[future]
                try:
                    done[name] = future.result()
                except LocpmapError as error:
                    errors[name] = str(error)
                except MemoryError:
                    errors[name] = f"{name} does not fit into memory"
                except OSError as error:
                    errors[name] = f"{error.filename or name}: {error.strerror}"
                progress(len(done) + len(errors), len(outputs))
        return [done[name] for name in sorted(done)], errors

    def one(self, outputs: Outputs, progress: Progress | None = None) -> Summary:
        """Read, refine and write one input, unless that is done; returns its record."""
        began = time.perf_counter()
        record = None if self.force else outputs.finished(self.recorded)
        if record is not None:
            return {**record, "state": "kept", "seconds": time.perf_counter() - began}
        pair = outputs.pair
        content = pair.read()
        try:
            result, areas = self._decode(content, progress)
        except LocpmapError as error:
            raise InputError(f"{pair.scores} with {pair.image}: {error}") from None
        record = outputs.write(content, result, areas, self.recorded)
        return {**record, "state": "done", "seconds": time.perf_counter() - began}

    def _decode(self, content: Content, progress: Progress | None) -> tuple[Result, Any]:
        """What `lp.refine` gives, and the pixels of each label in as many samples of `lp.Refiner.measure`, (M, L)."""
        image, scores, options = content.image, content.scores, {**asdict(self.settings), "mask": content.masked}
        result = self.refiner.refine(image, scores, **options, progress=progress)
        return result, self.refiner.measure(image, scores, "area", **options).values


@contextmanager
def _pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that drop what they have not begun when the command is interrupted."""
    pool = ThreadPoolExecutor(jobs)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare(output: Path, outputs: Sequence[Outputs], *, alone: bool, model: Path | None) -> None:
    """Make the folder, after a check that nothing written there is read from."""
    from locpmap.formats.atomic import checked_target
    from locpmap.formats.rasters import is_raster

    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, expected a folder for the results")
    inputs = [path for each in outputs for path in each.pair.paths]
    if not alone and any(output.resolve() == path.parent.resolve() for path in inputs):
        raise InputError(f"{output} is also read from, expected another folder for the results")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be made: {error.strerror}") from None
    if not os.access(output, os.W_OK):
        raise InputError(f"{output} cannot be written: permission denied")
    for each in outputs:
        for path in each.targets(is_raster(each.pair.image)):
            checked_target(path, *((*each.pair.paths, model) if path.exists() else ()))


def _hash(model: Path | None) -> str:
    """Of the model's file, to know it again."""
    from importlib.resources import files

    from locpmap.refining.refiner import SHIPPED

    content = model.read_bytes() if model is not None else (files("locpmap.refining") / SHIPPED).read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]


def _print(done: Sequence[Summary], output: Path) -> None:
    """Tables for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=True)
    if len(done) == 1:
        (record,) = done
        table = Table("label", "pixels", "area", "± std", f"{INTERVAL:.0%} of the samples", "share", box=None)
        for row in record["labels"]:
            spread = "" if row["std"] is None else f"± {row['std']:.1f}"
            low, high = row["interval"]
            share = f"{row['area'] / max(1, record['pixels']):.1%}"
            between = f"{low:.0f} to {high:.0f}"
            table.add_row(str(row["label"]), str(row["pixels"]), f"{row['area']:.1f}", spread, between, share)
    else:
        table = Table("input", "labels", "mean entropy", "seconds", "", box=None)
        for record in done:
            cells = (str(len(record["labels"])), f"{record['mean_entropy']:.3f}", f"{record['seconds']:.2f}")
            table.add_row(escape(record["name"]), *cells, record["state"])
    for column in table.columns[int(len(done) > 1) :]:
        column.justify = "right"
    console.print(table)
    n_files = sum(len(record["files"]) for record in done)
    kept = sum(record["state"] == "kept" for record in done)
    notes = [f"{n_files} files in {output}", f"{kept} inputs were finished before" if kept else ""]
    if len(done) == 1:
        notes.insert(0, f"mean entropy {done[0]['mean_entropy']:.3f}, {done[0]['seconds']:.2f} s")
    console.print("; ".join(note for note in notes if note), highlight=False, markup=False)
