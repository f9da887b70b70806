"""LocPMAP on a synthetic volume: seconds and peak memory: `python -m benchmarks.volumes`."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy import ndimage

import locpmap as lp
from benchmarks import machine, memory
from benchmarks.report import join_record

RECORD = Path(__file__).parent / "results" / "volumes.json"
SIGNAL, SMOOTH = 2.0, 4.0  # score of the true label; standard deviation of the filter that makes the labels, in voxels
WEIGHTS = {6: 0.5, 26: 0.15}
REPEATS = 5  # on a GPU


def synthetic_scores(size: int, n_labels: int, seed: int) -> np.ndarray:
    """Return scores (size, size, size, n_labels) of smooth random regions, with normal noise, in single precision."""
    rng = np.random.default_rng(seed)
    labels, highest = np.zeros((size,) * 3, np.int64), np.full((size,) * 3, -np.inf, np.float32)
    for k in range(n_labels):
        field = ndimage.gaussian_filter(rng.standard_normal((size,) * 3, dtype=np.float32), SMOOTH)
        labels[field > highest] = k
        np.maximum(highest, field, out=highest)
    scores = rng.standard_normal((*labels.shape, n_labels), dtype=np.float32)
    for k in range(n_labels):
        scores[..., k] += SIGNAL * (labels == k)
    return scores


def main(
    size: Annotated[int, typer.Option(help="Number of planes, of rows and of columns.")] = 256,
    n_labels: Annotated[int, typer.Option(help="Number of labels.")] = 4,
    n_samples: Annotated[int, typer.Option(help="Number of samples.")] = 50,
    connectivity: Annotated[int, typer.Option(help="6 or 26 neighbours.")] = 6,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of the volume and of the samples.")] = 0,
    record: Annotated[bool, typer.Option(help="Write the result into results/volumes.json.")] = False,
) -> None:
    """Decode a volume with the default options of LocPMAP, after a small one that compiles the kernels."""
    here: dict[str, Any] = dict(machine.machine())
    scores = synthetic_scores(size, n_labels, seed)
    decoder = lp.LocPMAP(n_samples=n_samples)

    def decode(part: Any) -> lp.Result:
        model = lp.Potentials.volume(part, WEIGHTS[connectivity], connectivity=connectivity)
        return lp.infer(model, decoder, seed=seed, device=device)

    decode(scores[:8, :8, :8])  # compiles
    if device == "cuda":
        from benchmarks.gpu_clock import card

        here |= card()
        measured = on_gpu(decode, scores)
    else:
        before = memory.restart_peak() - scores.nbytes
        began = time.perf_counter()
        result = decode(scores)
        measured = {
            "seconds": time.perf_counter() - began,
            "memory, in unaries": (memory.peak() - before) / scores.nbytes,
            "sweeps": result.n_sweeps,
        }
    measured["nanoseconds per voxel and sample"] = 1e9 * measured["seconds"] / size**3 / n_samples
    for name, value in measured.items():
        print(f"{name}: {value:.4g}")
    if record:
        name = f"{size}³ × {n_labels} × {n_samples}, {connectivity} neighbours, {device}"
        join_record(RECORD, name, {**machine.provenance("benchmarks.volumes", seed, here), **measured})


def on_gpu(decode: Callable[[Any], lp.Result], scores: np.ndarray) -> dict[str, float]:
    """Return median seconds of arrays, which are copied to the GPU, and of tensors that are there, and the memory."""
    import torch

    def seconds(given: Any) -> float:
        began = time.perf_counter()
        decode(given)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    seconds(scores)  # compiles
    torch.cuda.reset_peak_memory_stats()
    copied = statistics.median(seconds(scores) for _ in range(REPEATS))
    peak = torch.cuda.max_memory_allocated()
    there = torch.from_numpy(scores).cuda()
    resident = [seconds(there) for _ in range(REPEATS + 1)][1:]
    return {
        "seconds": copied,
        "seconds of tensors": statistics.median(resident),
        "memory, in unaries": peak / scores.nbytes,
        "sweeps": decode(there).n_sweeps,
    }


if __name__ == "__main__":
    typer.run(main)
