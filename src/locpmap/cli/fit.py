"""``locpmap fit``: fit a CRF to folders of inputs and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locpmap.cli.folders import MAX_LABELS, Example, count_labels, labelled, match
from locpmap.cli.options import DeviceOption, JsonOption, SeedOption
from locpmap.errors import InputError, LocpmapError, unknown

if TYPE_CHECKING:
    from locpmap.features import GivenUnary, ImageFeatures
    from locpmap.learning import FitResult

BLOCKS = ("rows", "columns", "rows+columns")
MAX_ROWS = 60  # rows of the printed table of weights


def fit(
    labels: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of label maps (H, W): integer .npy, or grey or palette .png.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL.safetensors", help="Model file to write.")],
    unary: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of unary features, such as logits: .npy, (H, W, D) or (H, W)."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of images: .png, .jpg or .npy.  Pairwise features are computed from them; without --unary,"
            " their intensities are the unary features.",
        ),
    ] = None,
    n_labels: Annotated[
        int | None, typer.Option(min=2, max=MAX_LABELS, help="Number of labels.  Default: the largest label + 1.")
    ] = None,
    ignore_label: Annotated[int | None, typer.Option(help="Label of void pixels, which are ignored.")] = None,
    pairwise: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Pairwise features, separated by commas: constant, difference, contrast, ends.  Default:"
            " constant,difference with images, constant without.",
        ),
    ] = None,
    connectivity: Annotated[int, typer.Option(metavar="4|8", help="Number of neighbours of a pixel.")] = 4,
    scale: Annotated[
        bool, typer.Option("--scale", help="Unary features are label scores: learn one scale and a bias per label.")
    ] = False,
    potts: Annotated[
        bool, typer.Option("--potts/--tables", help="Weights of a pairwise feature: one, or a table of label pairs.")
    ] = False,
    tied: Annotated[bool, typer.Option("--tied", help="Use the same pairwise weights for all kinds of edges.")] = False,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Make the tables symmetric.")] = False,
    non_negative: Annotated[bool, typer.Option("--non-negative", help="With --potts: weights of at least 0.")] = False,
    objective: Annotated[
        str,
        typer.Option(
            metavar="pseudolikelihood|composite|consistent|contrastive|likelihood", help="Objective to optimise."
        ),
    ] = "pseudolikelihood",
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Blocks of composite, consistent and contrastive: rows, columns, rows+columns, or tiles such as 2x3."
            "  Default: rows+columns for composite, single pixels for the others."
        ),
    ] = None,
    n_steps: Annotated[
        int | None, typer.Option(help="Gibbs sweeps of contrastive, 10 by default; more are closer to the likelihood.")
    ] = None,
    l2: Annotated[float, typer.Option(help="L2 penalty l2/2 · |w|² on the summed negative log-likelihood.")] = 1.0,
    batch_size: Annotated[
        int | None, typer.Option(help="Inputs per gradient step.  Default: all; consistent: about 50,000 pixels.")
    ] = None,
    max_iterations: Annotated[
        int, typer.Option(help="Maximum number of iterations; for mini-batches, of checks every 15 steps.")
    ] = 200,
    seed: SeedOption = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="State file, from which an interrupted fit resumes.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Fit a CRF to folders of labelled inputs and write a model file.

    Files of the folders are matched by name.  Features are cached in temporary files, so the data need not fit into
    memory.  To train with N processes, run `torchrun --nproc-per-node N -m locpmap fit ..`.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.crf import CRF
    from locpmap.formats.atomic import checked_target
    from locpmap.learning import FitOptions, joined_processes

    with joined_processes() as processes:
        examples = match(unary, images, labels)
        inputs = [path for example in examples for path in example.paths]
        target = checked_target(output, *inputs)
        check_replaceable(output, target)
        if checkpoint is not None and checked_target(checkpoint, *inputs) == target:
            raise InputError(f"--checkpoint is {checkpoint}, the file of the model, expected another file")
        tiles = _parse_blocks(blocks)
        extract = _features(examples[0], pairwise, connectivity)
        crf = CRF(
            count_labels(examples, n_labels, ignore_label),
            features=extract,
            unary="scale" if scale else "tables",
            tied=tied,
            symmetric=symmetric,
            potts=potts,
            non_negative=non_negative,
            ignore_label=ignore_label,
        )
        with ProgressBar(f"{objective} of {len(examples)} inputs", hidden=as_json) as bar:
            result = crf.fit(
                labelled(examples, extract),
                objective=objective,
                blocks=tiles,
                n_steps=n_steps,
                l2=l2,
                options=FitOptions(
                    batch_size=batch_size, max_iterations=max_iterations, checkpoint=checkpoint, processes=processes
                ),
                seed=seed,
                progress=lambda done, most, value: bar.update(done, most),
                device=device,
            )
        if processes.first:
            crf.save(output)
            report = _report(result, crf.n_labels, output)
            typer.echo(json.dumps(report, allow_nan=False) if as_json else _table(report))


def check_replaceable(output: Path, target: Path) -> None:
    """Raise unless the target is new, empty or a model file of this library."""
    from locpmap.formats.model_file import read_model

    if not target.is_file() or target.stat().st_size == 0:
        return
    try:
        read_model(target)
    except LocpmapError:
        raise InputError(
            f"{output} is not a model file of locpmap, expected a new file or a model to replace"
        ) from None


def _features(first: Example, pairwise: str | None, connectivity: int) -> ImageFeatures | GivenUnary:
    """Return the feature extractor, with the number of channels of the first input."""
    from locpmap.features import CONSTANT, GivenUnary, ImageFeatures

    image, unary = first.read_image(), first.read_unary()
    default = CONSTANT if image is None else f"{CONSTANT},difference"
    names = tuple(name.strip() for name in (default if pairwise is None else pairwise).split(","))
    channels = int(image.shape[2]) if image is not None and image.ndim == 3 else None
    if unary is None:
        return ImageFeatures(pairwise=names, connectivity=connectivity, channels=channels)
    given = GivenUnary(int(unary.shape[2]), names, connectivity, channels)
    if given.needs_image and image is None:
        raise InputError(f"--pairwise {pairwise} needs images, expected --images DIR or --pairwise {CONSTANT}")
    if image is not None and not given.needs_image:
        raise InputError(f"--images is given, but --pairwise {pairwise} does not use images")
    return given


def _parse_blocks(text: str | None) -> str | tuple[int, int] | None:
    """Return the name, or the size (h, w) of a tile."""
    if text is None or text in BLOCKS:
        return text
    tile = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if tile is None:
        raise unknown("value of --blocks", text, (*BLOCKS, "2x3"))
    return int(tile[1]), int(tile[2])


def _report(result: FitResult, n_labels: int, output: Path) -> dict[str, Any]:
    """Return the summary of the fit and all weights, as ``--json`` prints them."""
    errors: Sequence[float | None] = (
        [None] * len(result.names) if result.standard_errors is None else result.standard_errors.tolist()
    )
    rows = zip(result.names, result.w.tolist(), errors, strict=True)
    return {
        **result.summary(),
        "converged": result.converged,
        "n_labels": n_labels,
        "weights": [{"name": name, "value": value, "standard_error": error} for name, value, error in rows],
        "output": str(output),
    }


def _table(report: dict[str, Any]) -> str:
    """Format the report as text: the summary, then the weights with their standard errors."""
    loss = "largest mean difference" if report["objective"] == "contrastive" else "per labelled pixel"
    rows = {
        "objective": f"{report['objective']}, {report['value']:.5f} {loss}",
        "status": f"{report['status']}, after {report['n_iterations']} iterations",
        "data": f"{report['n_images']} inputs, {report['n_sites']} labelled pixels, {report['n_labels']} labels",
        "seconds": f"{report['seconds']:.1f}",
    }
    if "gain" in report:
        rows["gain"] = f"{report['gain']:.5f} per held-out pixel over the initial weights"
    lines = [f"{name:<14} {value}" for name, value in rows.items()]
    shown = report["weights"][:MAX_ROWS]
    wide = max(len(row["name"]) for row in shown)
    lines += ["", f"{'weight':<{wide}} {'value':>10} {'± s.e.':>10}"]
    for row in shown:
        error = "-" if row["standard_error"] is None else f"{row['standard_error']:.4f}"
        lines.append(f"{row['name']:<{wide}} {row['value']:>10.4f} {error:>10}")
    if len(report["weights"]) > MAX_ROWS:
        lines.append(f".. and {len(report['weights']) - MAX_ROWS} more: see --json")
    return "\n".join([*lines, "", f"{'written':<14} {report['output']}"])
