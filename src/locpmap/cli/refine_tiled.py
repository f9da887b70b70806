"""``locpmap refine`` for rasters that do not fit into memory: write a zarr group, tile by tile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from locpmap.cli.options import open_workers
from locpmap.cli.refine_inputs import VOLUMES
from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.cli.refine_inputs import Settings
    from locpmap.refining import Refiner
    from locpmap.scale import Summary

ENDING = ".zarr"
DEFAULT_ARRAYS = ("labels", "entropy")


def is_tiled(image: Path, output: Path) -> bool:
    """Return whether the output is a zarr group, which is written in tiles."""
    if output.suffix.lower() == ENDING:
        if image.name.lower().endswith(VOLUMES):
            raise InputError(f"--output is {output}, expected a folder for the NIfTI files of {image}")
        return True
    if image.suffix.lower() == ENDING:
        raise InputError(f"--output is {output}, expected a name that ends in {ENDING} for {image}")
    return False


def refine_tiled(
    image: Path,
    logits: Path | None,
    output: Path,
    refiner: Refiner,
    settings: Settings,
    keep: Sequence[str],
    decide: str | None,
    *,
    tile: int,
    max_sweeps: int,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Refine one raster, decide its labels if wanted, and print a summary."""
    from locpmap.cli.progress import ProgressBar
    from locpmap.deciding.measures import OVERLAPS
    from locpmap.scale import decide_tiled, refine_tiled

    if decide is not None and decide not in OVERLAPS:
        raise InputError(f"--decide is {decide}, expected {' or '.join(OVERLAPS)} for {output} of tiles")
    if settings.layout not in ("auto", "hwk"):
        raise InputError(f"--layout is {settings.layout}, expected hwk for {output} of tiles")
    options: dict[str, Any] = {
        "scores": settings.scores,
        "stride": 1.0 if settings.stride is None else settings.stride,
        "decoder": settings.decoder(max_sweeps=max_sweeps),
        "tile": tile,
        "seed": settings.seed,
        "device": "cpu" if settings.device == "auto" else settings.device,  # the same on all workers
    }
    pixels, scores, mask = _sources(image, logits)
    if any(output.resolve().is_relative_to(source.resolve()) for source in (image, logits) if source):
        raise InputError(f"{output} is also an input or inside one, expected another name for the results")
    result = refine_tiled(pixels, scores, refiner, mask=mask, **options)
    with open_workers(scheduler) as pool, ProgressBar("refining", hidden=as_json) as bar:

        def progress(done: int, total: int, rate: float) -> None:
            bar.update(done, total, f"{done} of {total} tiles, {rate:,.0f} pixels/s")

        arrays = (*keep, *(() if decide is None else ("labels", "probability")))  # a decision reads the last two
        summary = result.write(output, arrays=arrays, scheduler=pool, progress=progress)
    record = {"output": str(output), **vars(summary), "pixels_per_second": summary.pixels_per_second}
    sentence = _sentence(output, summary)
    if decide is not None:
        with ProgressBar(f"deciding for {decide}", hidden=as_json) as bar:
            expected = float(decide_tiled(output, decide, progress=bar.update).expected)
        record["decision"] = {"measure": decide, "expected": expected}
        sentence += f"; decided for {decide} over the raster: expected {expected:.4f}"
    typer.echo(json.dumps(record) if as_json else sentence)


def _sources(image: Path, logits: Path | None) -> tuple[Any, Any, Any]:
    """Open image, scores and mask from two files, or from one zarr group or array."""
    from locpmap.scale import open_raster
    from locpmap.scale.sources import open_zarr

    if logits is not None:
        return open_raster(image), open_raster(logits), None
    if image.suffix.lower() != ENDING or not image.is_dir():
        raise InputError(f"LOGITS is missing, expected the scores of {image}, or a zarr group that holds them")
    found = open_zarr(image)
    if hasattr(found, "dtype"):
        return None, found, None
    if not (image / "logits").exists():
        raise InputError(f"{image} holds no array 'logits', expected 'logits' and optionally 'image' and 'mask'")
    pixels, scores, mask = (
        open_raster(image / name) if (image / name).exists() else None for name in ("image", "logits", "mask")
    )
    return pixels, scores, mask


def _sentence(output: Path, summary: Summary) -> str:
    parts = [f"{summary.tiles} tiles in {output}"]
    if summary.kept:
        parts.append(f"{summary.kept} were finished before")
    if summary.pixels:
        parts.append(f"{summary.seconds:.1f} s, {summary.pixels_per_second:,.0f} pixels per second")
    if summary.not_converged:
        parts.append(f"{summary.not_converged} tiles did not converge: see --max-sweeps")
    return "; ".join(parts)
