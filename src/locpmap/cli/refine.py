"""``locpmap refine``: refined labels with calibrated uncertainty, from an image and a network's scores."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.folders import check_folder
from locpmap.cli.refine_deciding import Deciding, checksums_of, decided_sentence
from locpmap.cli.refine_inputs import Content, Pair, Settings, pairs_of, path_of
from locpmap.cli.refine_outputs import INTERVAL, MAX_MAPS, Decoded, Outputs
from locpmap.cli.refine_tiled import is_tiled, refine_tiled
from locpmap.errors import InputError, LocpmapError

if TYPE_CHECKING:
    from locpmap.refining import Refiner
    from locpmap.result import Result

BAD_INPUT = 2
OF_THE_MODEL = "as saved with the model"
Progress = Callable[[int, int], None]
Summary = dict[str, Any]


def refine(
    image: Annotated[
        Path,
        typer.Argument(metavar="IMAGE", parser=path_of, help="Image: .png, .jpg, .npy, GeoTIFF or zarr; or a folder."),
    ],
    logits: Annotated[
        Path | None,
        typer.Argument(
            metavar="LOGITS",
            parser=path_of,
            help="Scores of a network: .npy, .npz, .safetensors, GeoTIFF or zarr; or a folder.",
        ),
    ] = None,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUTDIR",
            parser=path_of,
            help="Folder for the results, created if missing; or a name that ends in .zarr, for large rasters.",
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=path_of, help="File of Refiner.save.  Default: the bundled refiner."),
    ] = None,
    layout: Annotated[
        str, typer.Option(help="Axes of the scores: hwk (labels last), khw (labels first) or auto.")
    ] = "auto",
    scores: Annotated[str, typer.Option(help="Kind of scores: logits, probabilities or auto.")] = "auto",
    stride: Annotated[
        float | None,
        typer.Option(
            help="Pixels per score.  Default: image size / score size (1 for .zarr).  Set it if you resized the scores."
        ),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(
            help="Factor on the learned effect of similar and adjacent pixels; with 0 the scores are only rescaled.",
            show_default=OF_THE_MODEL,
        ),
    ] = None,
    smoothing: Annotated[
        float | None,
        typer.Option(
            help="Weight added between neighbours of similar colour, for fewer specks.", show_default=OF_THE_MODEL
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Divides all scores; above 1 is less certain.", show_default=OF_THE_MODEL)
    ] = None,
    n_samples: Annotated[int, typer.Option(help="Number of label maps drawn for probabilities and areas.")] = 50,
    samples: Annotated[
        int, typer.Option(min=0, max=MAX_MAPS, help="Number of sampled label maps to write, with the learned errors.")
    ] = 0,
    decide: Annotated[
        str | None,
        typer.Option(
            help="Decide labels for the best expected iou, dice, boundary_iou or accuracy.",
            show_default="most probable",
        ),
    ] = None,
    abstain: Annotated[
        float | None,
        typer.Option(help="With --decide: largest expected fraction of wrong labels; other pixels get no label."),
    ] = None,
    blocks: Annotated[
        str, typer.Option(help="Blocks of LocPMAP: sites, rows, columns, rows+columns, or parts such as rows:16.")
    ] = "sites",
    seed: Annotated[int, typer.Option(help="Seed of the random generator.")] = 0,
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Inputs refined in parallel; memory grows with it.")] = 2,
    tiff: Annotated[bool, typer.Option("--tiff", help="Also write the maps as TIFF files.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Refine finished inputs again.")] = False,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers share this file system.")
    ] = None,
    tile: Annotated[int, typer.Option(min=1, help="For .zarr: side of a tile, in pixels.")] = 1024,
    max_sweeps: Annotated[
        int,
        typer.Option(min=1, help="For .zarr: maximum sweeps per sample; each widens the halo of a tile by 2 pixels."),
    ] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Refine a network's segmentation of one image, or of a folder of images.

    Files of two folders are matched by name.  For each input the command writes NAME.labels.png (palette indices),
    NAME.probability.npy and NAME.variance.npy (H, W, labels), NAME.entropy.npy (H, W), NAME.overlay.png (colours fade
    with uncertainty) and NAME.json (the settings, and the area of each label with its uncertainty).  With --samples 8
    it also writes NAME.sample-000.png to NAME.sample-007.png: plausible complete label maps, sampled with the
    error fields of the refiner if it has any.

    With --decide iou the labels have the best expected mean IoU: in one image, or over all images of a folder, with
    statistics of at most 32 of them.  boundary_iou and accuracy are decided in every image by itself.  Pixels that
    --abstain leaves out are written like masked ones.  NAME.json holds the rule and the expected value.

    GeoTIFF images and --tiff add .tif files of labels, samples, probability, variance and entropy, with a nodata tag.
    Files of a GeoTIFF image are georeferenced.  Pixels without data in the image or the scores are masked; their label
    in NAME.labels.png is 255 (65535 if there are 256 labels or more).  The image and the scores must cover the same
    area.

    A second run skips inputs that were finished with the same settings.  Inputs are compared by their content.

    If the output ends in .zarr, a raster of any size is refined in tiles.  IMAGE and LOGITS are then .npy, GeoTIFF or
    zarr arrays, or IMAGE alone is a zarr group with the array logits and optionally image and mask.  The scores have
    the size of the image and labels last (hwk); --blocks must be of bounded length (sites, rows:16); --device auto
    uses the CPU; --tiff, --force, --samples, --decide and folders are not available.  A zarr input needs a .zarr
    output.  The output group has the arrays labels, probability, variance and entropy.  An interrupted run resumes
    when it is started again.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.refining import Refiner

    refiner = _adjusted(Refiner.load(model), strength=strength, smoothing=smoothing, temperature=temperature)
    settings = Settings(layout, scores, stride, n_samples, blocks, seed, device)
    if is_tiled(image, output):
        options = {"tiff": tiff, "force": force, "samples": samples, "decide": decide, "abstain": abstain is not None}
        if wrong := [name for name, given in options.items() if given]:
            advice = ": refine without it, then decide the written probability with lp.Decider" * (wrong[0] == "decide")
            raise InputError(f"--{wrong[0]} is given, expected none for {output} of tiles{advice}")
        refine_tiled(image, logits, output, refiner, settings, tile, max_sweeps, scheduler, as_json=as_json)
        return
    if logits is None:
        raise InputError(f"LOGITS is missing, expected the scores of {image}")
    settings.check(refiner)
    if scheduler is not None:  # workers may have another working directory
        image, logits, output = image.resolve(), logits.resolve(), output.resolve()
    pairs = pairs_of(image, logits)
    deciding = Deciding.of(decide, abstain, pairs)
    outputs = [Outputs(output, pair, tiff, samples) for pair in pairs]
    _check_output(output, outputs, alone=not image.is_dir(), model=model)
    errors: dict[str, str] = {}
    written = {"model": _checksum(model), "tiff": tiff, "samples": samples}
    recorded = {**asdict(settings), **asdict(refiner.adjustment), **written}
    if deciding is not None:
        recorded |= deciding.settings()
    run = Run(refiner, settings, recorded, force, deciding).prepared(outputs)
    with ProgressBar("refining" if len(pairs) == 1 else f"refining {len(pairs)} inputs", hidden=as_json) as bar:
        if len(pairs) == 1 and scheduler is None:
            done = [run.one(outputs[0], bar.update)]
        else:
            done, errors = run.all(outputs, jobs, bar.update, scheduler)
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
    """One run of the command."""

    refiner: Refiner
    settings: Settings
    recorded: dict[str, Any]  # settings and refiner in the format of the records
    force: bool
    deciding: Deciding | None = None

    def prepared(self, outputs: Sequence[Outputs]) -> Run:
        """Return the run with the statistics that decisions need, unless all inputs are finished."""
        waiting = (one for one in outputs if self.force or not one.finished(self.recorded, checksums_of(one.pair)))
        if self.deciding is None or next(waiting, None) is None:
            return self
        return replace(self, deciding=self.deciding.with_statistics(self._result))

    def _result(self, pair: Pair) -> Result:
        return self._decode(pair.read(), 0, None).result

    def all(
        self, outputs: Sequence[Outputs], jobs: int, progress: Progress, scheduler: str | None = None
    ) -> tuple[list[Summary], dict[str, str]]:
        """Refine all inputs; return their summaries, sorted by name, and the error sentences of failed inputs."""
        from locpmap.cli.scheduling import open_workers
        from locpmap.scale.workers import each, value_of

        done: dict[str, Summary] = {}
        errors: dict[str, str] = {}
        with (
            open_workers(scheduler, jobs) as pool,
            closing(each(pool, outputs, lambda one: partial(self.one, one))) as ended,
        ):
            for one, future in ended:
                name = one.pair.name
                try:
                    done[name] = value_of(future)
                except LocpmapError as error:
                    errors[name] = str(error)
                except MemoryError:
                    errors[name] = f"{name} does not fit into memory"
                except OSError as error:
                    errors[name] = f"{error.filename or name}: {error.strerror}"
                progress(len(done) + len(errors), len(outputs))
        return [done[name] for name in sorted(done)], errors

    def one(self, outputs: Outputs, progress: Progress | None = None) -> Summary:
        """Refine one input, unless it is finished, and return its record."""
        began, pair = time.perf_counter(), outputs.pair
        inputs = pair.checksums()
        record = None if self.force else outputs.finished(self.recorded, inputs)
        if record is not None:
            return {**record, "state": "skipped", "seconds": time.perf_counter() - began}
        content = pair.read()
        try:
            decoded = self._decode(content, outputs.n_maps, progress)
        except LocpmapError as error:
            raise InputError(f"{pair.scores} with {pair.image}: {error}") from None
        record = outputs.write(content, decoded, self.recorded, inputs, self.deciding)
        return {**record, "state": "done", "seconds": time.perf_counter() - began}

    def _decode(self, content: Content, n_maps: int, progress: Progress | None) -> Decoded:
        """Return the result of `lp.refine`, the areas in M samples with the learned errors, and the first maps."""
        from locpmap.inference import samples
        from locpmap.refining.drawing import draw

        settings = self.settings
        prepared = self.refiner.prepare(content.image, content.scores, **settings.reading, mask=content.masked)
        decoder = settings.decoder()
        where: dict[str, Any] = {"seed": settings.seed, "device": settings.device}
        n_pixels = content.image.shape[0] * content.image.shape[1]
        kept = 0 if self.deciding is None else self.deciding.n_maps(settings.n_samples, n_pixels)
        drawn = draw(prepared, decoder, kept, **where, progress=progress)
        result = replace(drawn.result, samples=drawn.maps) if kept else drawn.result
        decoded = Decoded(result, drawn.areas, guarantee=self.refiner.guarantee)
        if not n_maps:
            return decoded
        sampler = prepared.sampler(replace(decoder, n_samples=n_maps))
        return decoded._replace(samples=samples(prepared.potentials, sampler, **where))


def _adjusted(refiner: Refiner, **adjustments: float | None) -> Refiner:
    """Return the refiner with the adjustments that are not None; the others stay as saved."""
    return refiner.adjusted(
        **asdict(refiner.adjustment) | {name: value for name, value in adjustments.items() if value is not None}
    )


def _check_output(output: Path, outputs: Sequence[Outputs], *, alone: bool, model: Path | None) -> None:
    """Raise if the folder cannot be created, or a target cannot be written or is also an input."""
    from locpmap.formats.atomic import checked_target
    from locpmap.formats.rasters import is_raster

    check_folder(output, () if alone else [path for each in outputs for path in each.pair.paths])
    for each in outputs if output.exists() else ():
        for path in each.targets(is_raster(each.pair.image)):
            checked_target(path, *((*each.pair.paths, model) if path.exists() else ()))


def _checksum(model: Path | None) -> str:
    from importlib.resources import as_file, files

    from locpmap.formats.readable import checksum
    from locpmap.refining.model_file import SHIPPED

    with as_file(files("locpmap.refining") / SHIPPED) as shipped:
        return checksum(shipped if model is None else model)[:16]


def _print(done: Sequence[Summary], output: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=True)
    if len(done) == 1:
        (record,) = done
        interval = f"{INTERVAL:.0%} interval" + (", guaranteed" if record["guaranteed"] else "")
        table = Table("label", "pixels", "area", "± std", interval, "fraction", box=None)
        for row in record["labels"]:
            spread = "" if row["std"] is None else f"± {row['std']:.1f}"
            low, high = row["interval"]
            fraction = f"{row['area'] / max(1, record['pixels']):.1%}"
            between = f"{low:.0f} to {high:.0f}"
            table.add_row(str(row["label"]), str(row["pixels"]), f"{row['area']:.1f}", spread, between, fraction)
    else:
        table = Table("input", "labels", "mean entropy", "seconds", "", box=None)
        for record in done:
            cells = (str(len(record["labels"])), f"{record['mean_entropy']:.3f}", f"{record['seconds']:.2f}")
            table.add_row(escape(record["name"]), *cells, record["state"])
    for column in table.columns[int(len(done) > 1) :]:
        column.justify = "right"
    console.print(table)
    n_files = sum(len(record["files"]) for record in done)
    skipped = sum(record["state"] == "skipped" for record in done)
    notes = [f"{n_files} files in {output}", f"finished before: {skipped}" if skipped else ""]
    if len(done) == 1:
        notes.insert(0, f"mean entropy {done[0]['mean_entropy']:.3f}, {done[0]['seconds']:.2f} s")
    if decided := [record for record in done if "decision" in record]:
        console.print(decided_sentence(decided), highlight=False, markup=False)
    console.print("; ".join(note for note in notes if note), highlight=False, markup=False)
