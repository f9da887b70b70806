"""``locpmap fit-refiner``: fit a refiner to a network's logits and true labels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from locpmap.arrays import Array
from locpmap.cli.fit import check_replaceable
from locpmap.cli.folders import ENDINGS, files_by_stem, read_labels
from locpmap.cli.options import JsonOption, SeedOption
from locpmap.cli.refine_inputs import VOLUMES, LayoutOption, Pair, ScoresOption, pairs_of, path_of
from locpmap.errors import InputError

NO_LABEL = -1


def fit_refiner(
    image: Annotated[
        Path,
        typer.Argument(metavar="IMAGES", parser=path_of, help="Folder of images, with or without their logits."),
    ],
    logits: Annotated[
        Path | None,
        typer.Argument(
            metavar="LOGITS",
            parser=path_of,
            help="Folder of a network's scores.  Not needed if IMAGES is a folder that holds both.",
        ),
    ] = None,
    *,
    labels: Annotated[
        Path,
        typer.Option(
            metavar="DIR", parser=path_of, help="Folder of true labels: grey or palette .png, integer .npy, or NIfTI."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="REFINER.safetensors", parser=path_of, help="File for `locpmap refine --model`."
        ),
    ],
    ignore_label: Annotated[int, typer.Option(help="Label of pixels without a true label.")] = NO_LABEL,
    guarantee: Annotated[
        float,
        typer.Option(
            metavar="FRACTION",
            help="Fraction of the images to set aside, to guarantee intervals of areas: at least 9 images (0.3 of 30).",
        ),
    ] = 0.0,
    layout: LayoutOption = "auto",
    scores: ScoresOption = "auto",
    stride: Annotated[float | None, typer.Option(help="Pixels per score.  Default: image size / score size.")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Fit a refiner to your network's logits and true labels.

    Use images, 20 or more, that the network was not trained on.  Images, logits and labels are matched by name, as for
    `locpmap refine`; NIfTI scans need labels in NIfTI files.  The command prints a report of cross-validation, which
    says whether the refiner helps, and writes a file for `locpmap refine --model`.  With --guarantee 0.3 the intervals
    of areas or volumes that `locpmap refine` prints then hold with 90 % probability.
    """
    from locpmap.cli.progress import ProgressBar
    from locpmap.formats.atomic import checked_target
    from locpmap.refining import Refiner

    pairs, truths = _files(image, logits, labels)
    inputs = [path for pair in pairs for path in pair.paths] + truths
    check_replaceable(output, checked_target(output, *inputs))
    volumes = pairs[0].is_volume
    if volumes and layout != "auto":
        raise InputError(f"--layout is {layout}, expected auto for NIfTI files, whose last axis counts labels")
    content = [_read(pair, truth, ignore_label) for pair, truth in zip(pairs, truths, strict=True)]
    images, network, true, spacing = zip(*content, strict=True)
    with ProgressBar(f"fitting to {len(pairs)} {'volumes' if volumes else 'images'}", hidden=as_json) as bar:
        try:
            refiner = Refiner.fit(
                images,
                network,
                true,
                ignore_label=ignore_label,
                layout="dhwk" if volumes else layout,
                scores=scores,
                stride=stride,
                spacing=spacing if volumes else None,
                seed=seed,
                guarantee=guarantee,
                progress=lambda done, total, loss: bar.update(done, total),
            )
        except InputError as error:
            raise InputError(_with_names(str(error), pairs, truths)) from None
    refiner.save(output)
    promised = refiner.guarantee
    if as_json:
        report = None if refiner.report is None else refiner.report.to_dict()
        n_images = None if promised is None else promised.n_images
        typer.echo(json.dumps({"report": report, "calibration_images": n_images, "output": str(output)}))
        return
    parts = [str(refiner.report), "" if promised is None else str(promised), f"written {output}"]
    typer.echo("\n\n".join(part for part in parts if part))


def _files(image: Path, logits: Path | None, labels: Path) -> tuple[list[Pair], list[Path]]:
    """Return the pairs of image and scores, and the file of true labels of each of them."""
    for name, path in (("IMAGES", image), ("LOGITS", logits), ("--labels", labels)):
        if path is not None and not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise InputError(f"{name} {path} {what}, expected a folder")
    pairs = pairs_of(image, logits)
    endings = VOLUMES if pairs[0].is_volume else ENDINGS["labels"]
    truths = files_by_stem(labels, endings, f"--labels {labels}")
    for pair in pairs:
        if pair.name not in truths:
            names = " or ".join(f"{pair.name}{ending}" for ending in endings)
            raise InputError(f"{pair.image} has no true labels in {labels}, expected {names} there")
    return pairs, [truths[pair.name] for pair in pairs]


def _read(pair: Pair, truth: Path, ignore_label: int) -> tuple[Array, Array, Array, Any]:
    """Read an image, its scores, its true labels and its spacing; pixels without data have no true label."""
    from locpmap.formats import nifti

    content = pair.read()
    if content.scan is not None:
        return content.image, content.scores, nifti.read_labels(truth, content.scan, pair.image), content.spacing
    true = read_labels(truth).astype(np.int64)
    if content.masked is not None and content.masked.shape == true.shape:
        true = np.where(content.masked, ignore_label, true)
    return content.image, content.scores, true, None


def _with_names(sentence: str, pairs: Sequence[Pair], truths: Sequence[Path]) -> str:
    """Replace the position of an example in an error by the name of its file, and the argument by the option."""
    sentence = re.sub(r"\blabels\[(\d+)\]", lambda found: str(truths[int(found[1])]), sentence)
    sentence = re.sub(r"\bimage (\d+):", lambda found: f"{pairs[int(found[1])].scores}:", sentence)
    void = r"contains (-?\d+), expected (0 to \d+) or ignore_label=-?\d+"
    sentence = re.sub(void, r"contains \1, expected \2, or --ignore-label \1 for pixels without a label", sentence)
    return sentence.replace("ignore_label", "--ignore-label")
