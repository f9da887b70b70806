"""Results in docs/scale.md from the records of `benchmarks.tiled` and `benchmarks.gpu`.

Only the part of the page between its two markers is replaced.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/scale.md"
GPU = Path(__file__).parent / "results" / "gpu-nvidia-h200.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
CONTINENT = 10.2e6  # area of Europe in square kilometres
GROUND = 10.0  # side of a pixel in metres
GPU_PIXELS = 2048 * 2048  # pixels of the task T4 in the GPU's record, with 50 samples and 8 labels
GB = 1e9


def rewritten(page: str, record: dict[str, Any], gpu: dict[str, Any] | None) -> str:
    """Return the page with its measured part replaced by these records."""
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    return "\n\n".join([before, *sections(record, gpu), after])


def sections(record: dict[str, Any], gpu: dict[str, Any] | None) -> list[str]:
    """Return the paragraphs and tables, in Markdown, of the parts that were measured."""
    makers = (("same", _same), ("kills", _kills), ("speedup", _speedup), ("large", _large), ("tiles", _tiles))
    parts = [make(record[name]) for name, make in makers if name in record]
    if "tiles" in record:
        parts.append(_continent(record["tiles"], gpu))
    return parts


def _same(part: dict[str, Any]) -> str:
    size, digests = part["size"], part["sha256"]
    word = "identical" if part["equal"] else "**not identical**"
    rows = "\n".join(f"| {name} | `{digest[:16]}…` |" for name, digest in digests.items())
    return (
        f"SHA-256 of all labels, probabilities, variances and entropies of a raster of {size:,} × {size:,} pixels with"
        f" 8 labels; the results are {word}:\n\n| decoded as | SHA-256 |\n|---|---|\n{rows}"
    )


def _kills(part: dict[str, Any]) -> str:
    word = "identical to" if part["equal"] else "**different from**"
    return (
        f"Workers were killed at random {part['kills']} times during a run of {part['size']:,} × {part['size']:,}"
        f" pixels. The result is {word} that of an undisturbed run."
    )


def _speedup(part: dict[str, Any]) -> str:
    one, two = (part["pixels_per_second"][n] for n in ("1", "2"))
    return (
        f"Two workers of one core decode {two:,.0f} pixels per second, and one decodes {one:,.0f}, with"
        f" {part['n_samples']} samples. The median ratio of {len(part['ratios'])} alternating rounds is"
        f" {part['ratio']:.2f}. Other programs were running ({_load(part)})."
    )


def _large(part: dict[str, Any]) -> str:
    size, tiles = part["size"], part["tiles"]
    changing = part["not_converged"]
    before = f" (without {part['kept']} tiles of an earlier, interrupted run)" if part["kept"] else ""
    ends = "all tiles had converged" if not changing else f"{changing} tiles had not converged"
    return (
        f"{size:,} × {size:,} synthetic pixels with 8 labels, {part['n_samples']} samples, in {tiles} tiles of"
        f" {part['tile']:,} on two workers with {part['memory_limit']} each: {part['seconds'] / 60:.0f} minutes{before}"
        f" or {part['pixels_per_second']:,.0f} pixels per second, {max(part['peak_bytes']) / GB:.1f} GB at most in a"
        f" worker, and {part['stored_bytes'] / GB:.1f} GB written (labels and entropy). After {part['max_sweeps']}"
        f" sweeps {ends}."
        f" Other programs were running ({_load(part)})."
    )


def _tiles(part: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {row['tile']:,} | {row['n_samples']} | {overhead(row['tile'], part['halo']):.2f} |"
        f" {row['pixels_per_second']:,.0f} | {row['peak_bytes'] / GB:.2f} |"
        for row in part["rows"]
    )
    return (
        f"Speed by size of the tile on one core ({part['machine']['cpu']}), with 8 labels in single precision and a"
        f" halo of {part['halo']} pixels (`max_sweeps={part['max_sweeps']}`). Memory is that of the whole process:\n\n"
        "| tile | samples | decoded ÷ returned pixels | pixels/s per core | GB |\n|---:|---:|---:|---:|---:|\n" + rows
    )


def overhead(tile: int, halo: int) -> float:
    """Return the ratio of the pixels of a tile with its halo to those of the tile."""
    return (tile + 2 * halo) ** 2 / tile**2


def _continent(part: dict[str, Any], gpu: dict[str, Any] | None) -> str:
    (row,) = (row for row in part["rows"] if row["n_samples"] == 50)
    pixels = CONTINENT * 1e6 / GROUND**2
    core_hours = pixels / row["pixels_per_second"] / 3600
    text = (
        f"**A continent at {GROUND:.0f} m.** Europe has {CONTINENT / 1e6:.1f} million km² and {pixels / 1e9:.0f}"
        f" billion pixels. With 8 labels, 50 samples and tiles of {row['tile']:,}, decoding takes {core_hours:,.0f}"
        f" core-hours: {core_hours / 1000:.1f} hours on 1,000 cores. Labels and entropy take {pixels * 6 / 1e12:.1f} TB"
        f" before compression ({pixels * (6 + 64) / 1e12:.0f} TB with probabilities and variances)."
    )
    if gpu is None:
        return text
    rate = GPU_PIXELS / (gpu["results"]["T4"]["locpmap"]["milliseconds"] / 1000)
    hours = pixels * overhead(row["tile"], part["halo"]) / rate / 3600
    return (
        f"{text} One {gpu['machine']['gpu']} decodes {rate / 1e6:,.0f} million such pixels per second if the scores are"
        f" in its memory ([GPUs](gpu.md)). That is {hours:.1f} hours for the continent, including halos, without the"
        f" transfer of {pixels * 32 / 1e12:.0f} TB of scores."
    )


def _load(part: dict[str, Any]) -> str:
    return f"a load of {part['machine']['load']:g} on {part['machine']['cores']} cores at the end"


def write(record: Path, page: Path = PAGE) -> None:
    """Replace the measured part of the page."""
    gpu = json.loads(GPU.read_text()) if GPU.exists() else None
    page.write_text(rewritten(page.read_text(), json.loads(record.read_text()), gpu))
