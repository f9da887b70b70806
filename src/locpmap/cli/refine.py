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
from locpmap.cli.options import DeviceOption, JsonOption, SchedulerOption, SeedOption, open_workers, parse_choices
from locpmap.cli.refine_deciding import DATASET, Deciding, checksums_of
from locpmap.cli.refine_inputs import (
    Content,
    LayoutOption,
    Pair,
    ScoresOption,
    Settings,
    check_names,
    pairs_of,
    path_of,
)
from locpmap.cli.refine_outputs import DEFAULT, FILES, MAX_MAPS, Decoded, Outputs
from locpmap.cli.refine_summary import summary
from locpmap.cli.refine_tiled import DEFAULT_ARRAYS, is_tiled, refine_tiled
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
        typer.Argument(
            metavar="IMAGE",
            parser=path_of,
            help="Image: .png, .jpg, .npy, GeoTIFF or zarr; a NIfTI scan; or a folder of images, with or without their"
            " logits.",
        ),
    ],
    logits: Annotated[
        Path | None,
        typer.Argument(
            metavar="LOGITS",
            parser=path_of,
            help="Scores of a network: .npy, .npz, .safetensors, GeoTIFF, zarr or NIfTI; or a folder.  Not needed if"
            " IMAGE is a folder that holds both.",
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
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help=f"Files to write, separated by commas: {', '.join(FILES)}.  NAME.json is always written.",
            show_default=f"{','.join(DEFAULT)}; for .zarr {','.join(DEFAULT_ARRAYS)}",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path_of,
            help="Text file with the name of a label per line.  Default: names.txt in a folder of images and logits.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path_of,
            help="File of `locpmap fit-refiner` or Refiner.save.  Default: the bundled refiner.",
        ),
    ] = None,
    layout: LayoutOption = "auto",
    scores: ScoresOption = "auto",
    stride: Annotated[
        float | None,
        typer.Option(
            help="Image pixels per score, such as 8.  Default: image size / score size (1 for .zarr).  Set it if you"
            " resized the scores."
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
        int, typer.Option(min=0, max=MAX_MAPS, help="Number of sampled label maps to write; see also --n-samples.")
    ] = 0,
    decide: Annotated[
        str | None,
        typer.Option(
            metavar="iou|dice|boundary_iou|accuracy",
            help="Decide labels for the best expected value of a measure; fit a refiner first (fit-refiner).",
            show_default="most probable",
        ),
    ] = None,
    over: Annotated[
        str,
        typer.Option(
            metavar="dataset|image", help="With --decide iou or dice: decide for a folder, or for each image."
        ),
    ] = "dataset",
    abstain: Annotated[
        float | None,
        typer.Option(
            help="With --decide: leave out the least certain pixels.  Of the rest, at most this fraction is expected to"
            " be wrong."
        ),
    ] = None,
    blocks: Annotated[
        str,
        typer.Option(help="Advanced: blocks of LocPMAP: sites, rows, columns, rows+columns, or parts such as rows:16."),
    ] = "sites",
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Inputs refined in parallel; memory grows with it.")] = 2,
    tiff: Annotated[bool, typer.Option("--tiff", help="Write the kept maps also as TIFF files.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Refine finished inputs again.")] = False,
    scheduler: SchedulerOption = None,
    tile: Annotated[int, typer.Option(min=1, help="For .zarr: side of a tile, in pixels.")] = 1024,
    max_sweeps: Annotated[
        int,
        typer.Option(min=1, help="For .zarr: maximum sweeps per sample; each widens the halo of a tile by 2 pixels."),
    ] = 32,
    as_json: JsonOption = False,
) -> None:
    """Refine a network's segmentation of an image or a folder.

    Images and logits of folders are matched by name: photos/cat.jpg and logits/cat.npy, or both in one folder.

    For each input the command writes NAME.labels.png (palette indices), NAME.overlay.png (colours fade with
    uncertainty) and NAME.json (the settings, and the area of each label with its uncertainty).  --keep and --samples
    write more.  A second run skips inputs that were finished with the same settings.

    A NIfTI scan is refined as one volume, and a raster in tiles if the output ends in .zarr.  Files of a GeoTIFF image
    are georeferenced.  The page "The command line" of the documentation describes all files.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.formats.names import read_names
    from locpmap.formats.pairs import NAMES_FILE
    from locpmap.refining import Refiner

    kept = None if keep is None else parse_choices("--keep", keep, tuple(FILES))
    refiner = Refiner.load(model)
    adjustments = {"strength": strength, "smoothing": smoothing, "temperature": temperature}
    given = {name: value for name, value in adjustments.items() if value is not None}  # the others stay as saved
    refiner = refiner.adjusted(**asdict(refiner.adjustment) | given)
    settings = Settings(layout, scores, stride, n_samples, blocks, seed, device)
    if is_tiled(image, output):
        options = {"tiff": tiff, "force": force, "samples": samples, "abstain": abstain is not None}
        options |= {"over": over != DATASET}
        options |= {"names": names is not None, "keep overlay": "overlay" in (kept or ())}
        if wrong := [name for name, given in options.items() if given]:
            raise InputError(f"--{wrong[0]} is given, expected none for {output} of tiles")
        how: dict[str, Any] = {"tile": tile, "max_sweeps": max_sweeps, "scheduler": scheduler, "as_json": as_json}
        refine_tiled(image, logits, output, refiner, settings, kept or DEFAULT_ARRAYS, decide, **how)
        return
    if scheduler is not None:  # workers may have another working directory
        image, logits, output = image.resolve(), logits and logits.resolve(), output.resolve()
    pairs = pairs_of(image, logits)
    settings.check(refiner, pairs)
    if tiff and pairs[0].is_volume:
        raise InputError("--tiff is given, expected none for NIfTI files")
    deciding = Deciding.of(decide, abstain, pairs, over)
    if names is None and logits is None and (image / NAMES_FILE).is_file():
        names = image / NAMES_FILE
    named = None if names is None else read_names(names)
    if named is not None and len(pairs) > 1:  # one error instead of one per input
        check_names(named, settings.n_labels(pairs[0]))
    kept = kept or DEFAULT
    outputs = [Outputs(output, pair, tiff, samples, kept, named) for pair in pairs]
    _check_output(output, outputs, alone=not image.is_dir(), others=(model, names))
    errors: dict[str, str] = {}
    written = {"model": _checksum(model), "keep": list(kept), "tiff": tiff, "samples": samples}
    written["names"] = None if named is None else list(named)
    recorded = {**asdict(settings), **asdict(refiner.adjustment), **written}
    if deciding is not None:
        recorded |= deciding.settings()
    with ProgressBar("statistics of the inputs", hidden=as_json) as bar:
        run = Run(refiner, settings, recorded, force, deciding).prepared(outputs, bar.update)
    with ProgressBar("refining" if len(pairs) == 1 else f"refining {len(pairs)} inputs", hidden=as_json) as bar:
        if len(pairs) == 1 and scheduler is None:
            done = [run.one(outputs[0], bar.update)]
        else:
            done, errors = run.all(outputs, jobs, bar.update, scheduler)
    failed = [{"name": name, "error": sentence} for name, sentence in sorted(errors.items())]
    if as_json:
        typer.echo(json.dumps({"output": str(output), "inputs": done, "errors": failed}))
    elif done:
        typer.echo(summary(done, output))
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

    def prepared(self, outputs: Sequence[Outputs], progress: Progress) -> Run:
        """Return the run with the statistics that decisions need, unless all inputs are finished."""
        waiting = (one for one in outputs if self.force or not one.finished(self.recorded, checksums_of(one.pair)))
        if self.deciding is None or next(waiting, None) is None:
            return self

        def decode(pair: Pair) -> Result:
            return self._decode(pair.read(), 0, None).result

        return replace(self, deciding=self.deciding.with_statistics(decode, progress))

    def all(
        self, outputs: Sequence[Outputs], jobs: int, progress: Progress, scheduler: str | None = None
    ) -> tuple[list[Summary], dict[str, str]]:
        """Refine all inputs; return their summaries, sorted by name, and the error sentences of failed inputs."""
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
                    errors[name] = f"{error.filename or name} cannot be read or written: {error.strerror or error}"
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
            decoded = self._decode(content, outputs.n_maps, progress, outputs.names)
        except LocpmapError as error:
            raise InputError(f"{pair.scores} with {pair.image}: {error}") from None
        record = outputs.write(content, decoded, self.recorded, inputs, self.deciding)
        return {**record, "state": "done", "seconds": time.perf_counter() - began}

    def _decode(
        self, content: Content, n_maps: int, progress: Progress | None, names: tuple[str, ...] | None = None
    ) -> Decoded:
        """Return the result of `lp.refine`, the areas in M samples with the learned errors, and the first maps."""
        from locpmap.inference import samples
        from locpmap.refining.drawing import draw
        from locpmap.refining.model_file import VOLUMES

        settings = self.settings
        prepared = self.refiner.prepare(
            content.image, content.scores, **settings.reading(content.spacing), mask=content.masked
        )
        if names is not None:
            check_names(names, prepared.potentials.n_labels)
        decoder = settings.decoder()
        where: dict[str, Any] = {"seed": settings.seed, "device": settings.device}
        n_pixels = prepared.potentials.n_sites
        kept = 0 if self.deciding is None else self.deciding.n_maps(settings.n_samples, n_pixels)
        drawn = draw(prepared, decoder, kept, **where, progress=progress)
        result = replace(drawn.result, samples=drawn.maps) if kept else drawn.result
        learned_on = "volumes" if VOLUMES in self.refiner.details else "images"
        if not self.refiner.weights.sizes.any():
            learned_on = "no error fields"
        decoded = Decoded(result, drawn.areas, guarantee=self.refiner.guarantee, learned_on=learned_on)
        if not n_maps:
            return decoded
        sampler = prepared.sampler(replace(decoder, n_samples=n_maps))
        return decoded._replace(samples=samples(prepared.potentials, sampler, **where))


def _check_output(output: Path, outputs: Sequence[Outputs], *, alone: bool, others: Sequence[Path | None]) -> None:
    """Raise if the folder cannot be created, or a target cannot be written, is an input or of another program."""
    from locpmap.formats.atomic import checked_target
    from locpmap.formats.rasters import is_raster

    inputs = [path for each in outputs for path in each.pair.paths]
    check_folder(output, () if alone else inputs)
    for each in outputs if output.exists() else ():
        each.earlier()
        for path in each.targets(is_raster(each.pair.image)):
            own = inputs if path.is_symlink() else each.pair.paths  # a link may lead to any input
            checked_target(path, *((*own, *others) if path.exists() else ()))


def _checksum(model: Path | None) -> str:
    from importlib.resources import as_file, files

    from locpmap.formats.readable import checksum
    from locpmap.refining.model_file import SHIPPED

    with as_file(files("locpmap.refining") / SHIPPED) as shipped:
        return checksum(shipped if model is None else model)[:16]
