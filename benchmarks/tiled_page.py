"""The figures of docs/scale.md from the records of `benchmarks.tiled` and `benchmarks.gpu`.

What stands between the page's two markers is replaced; the rest is written by hand.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/scale.md"
GPU = Path(__file__).parent / "results" / "gpu-nvidia-h200.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
CONTINENT = 10.2e6  # square kilometres of Europe
GROUND = 10.0  # metres of a pixel, along an axis
GPU_PIXELS = 2048 * 2048  # of the task that the GPU's record calls T4, with 50 samples and 8 labels
GB = 1e9


def rewritten(page: str, record: dict[str, Any], gpu: dict[str, Any] | None) -> str:
    """The page with its measured part from these records."""
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    return "\n\n".join([before, *sections(record, gpu), after])


def sections(record: dict[str, Any], gpu: dict[str, Any] | None) -> list[str]:
    """Paragraphs and tables in Markdown, of those parts that have been measured."""
    makers = (("same", _same), ("kills", _kills), ("speedup", _speedup), ("large", _large), ("tiles", _tiles))
    parts = [make(record[name]) for name, make in makers if name in record]
    if "tiles" in record:
        parts.append(_continent(record["tiles"], gpu))
    return parts


def _same(part: dict[str, Any]) -> str:
    size, digests = part["size"], part["sha256"]
    word = "the same" if part["equal"] else "**not the same**"
    rows = "\n".join(f"| {name} | `{digest[:16]}…` |" for name, digest in digests.items())
    return (
        f"A raster of {size:,} × {size:,} pixels with 8 labels; sha256 of all labels, probabilities, variances and"
        f" entropies, which are {word}:\n\n| decoded as | sha256 |\n|---|---|\n{rows}"
    )


def _kills(part: dict[str, Any]) -> str:
    word = "the same sha256" if part["equal"] else "**another sha256**"
    return (
        f"Workers killed at random {part['kills']} times during a run of {part['size']:,} × {part['size']:,} pixels:"
        f" {word} as without."
    )


def _speedup(part: dict[str, Any]) -> str:
    one, two = (part["pixels_per_second"][n] for n in ("1", "2"))
    return (
        f"Two workers of one core beside one, {part['n_samples']} samples, medians of {len(part['ratios'])} rounds in"
        f" turn: {two:,.0f} pixels per second and {one:,.0f}; the median of the ratios is {part['ratio']:.2f}, beside"
        f" other programs ({_load(part)})."
    )


def _large(part: dict[str, Any]) -> str:
    size, tiles = part["size"], part["tiles"]
    changing = part["not_converged"]
    before = f" ({part['kept']} of the tiles in a run before that was interrupted)" if part["kept"] else ""
    ends = "in no tile was anything still changing" if not changing else f"in {changing} tiles something still changed"
    return (
        f"{size:,} × {size:,} pixels with 8 labels, made where they are read, {part['n_samples']} samples, {tiles}"
        f" tiles of {part['tile']:,} on two workers limited to {part['memory_limit']} each: {part['seconds'] / 60:.0f}"
        f" minutes{before}, beside other programs ({_load(part)}), {part['pixels_per_second']:,.0f} pixels per second,"
        f" {max(part['peak_bytes']) / GB:.1f} GB in the larger worker at most, {part['stored_bytes'] / GB:.1f} GB"
        f" written (labels and entropy). After {part['max_sweeps']} sweeps, {ends}."
    )


def _tiles(part: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {row['tile']:,} | {row['n_samples']} | {overhead(row['tile'], part['halo']):.2f} |"
        f" {row['pixels_per_second']:,.0f} | {row['peak_bytes'] / GB:.2f} |"
        for row in part["rows"]
    )
    return (
        f"One core ({part['machine']['cpu']}), 8 labels in single precision, a halo of {part['halo']} pixels"
        f" (`max_sweeps={part['max_sweeps']}`); memory is that of the whole process:\n\n"
        "| tile | samples | pixels decoded to one kept | pixels/s per core | GB |\n|---:|---:|---:|---:|---:|\n" + rows
    )


def overhead(tile: int, halo: int) -> float:
    """Pixels of a window to one of its tile."""
    return (tile + 2 * halo) ** 2 / tile**2


def _continent(part: dict[str, Any], gpu: dict[str, Any] | None) -> str:
    (row,) = (row for row in part["rows"] if row["n_samples"] == 50)
    pixels = CONTINENT * 1e6 / GROUND**2
    core_hours = pixels / row["pixels_per_second"] / 3600
    text = (
        f"**A continent at {GROUND:.0f} m.** Europe has {CONTINENT / 1e6:.1f} million km², {pixels / 1e9:.0f} thousand"
        f" million pixels. With 8 labels, 50 samples and tiles of {row['tile']:,}: {core_hours:,.0f} core-hours,"
        f" {core_hours / 1000:.1f} hours on 1,000 cores, and {pixels * 6 / 1e12:.1f} TB for labels and entropy before"
        f" compression ({pixels * (6 + 64) / 1e12:.0f} TB with probabilities and variances)."
    )
    if gpu is None:
        return text
    rate = GPU_PIXELS / (gpu["results"]["T4"]["locpmap"]["milliseconds"] / 1000)
    hours = pixels * overhead(row["tile"], part["halo"]) / rate / 3600
    return (
        f"{text} One {gpu['machine']['gpu']} decodes {rate / 1e6:,.0f} million pixels per second of the same kind where"
        f" the scores lie in its memory ([GPUs](gpu.md)): {hours:.1f} hours for the continent, halos included, but the"
        f" {pixels * 32 / 1e12:.0f} TB of scores have to get there."
    )


def _load(part: dict[str, Any]) -> str:
    return f"a load of {part['machine']['load']:g} on {part['machine']['cores']} cores at the end"


def write(record: Path, page: Path = PAGE) -> None:
    """Rewrite the measured part of the page."""
    gpu = json.loads(GPU.read_text()) if GPU.exists() else None
    page.write_text(rewritten(page.read_text(), json.loads(record.read_text()), gpu))
