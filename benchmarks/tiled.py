"""Tiled decoding on Dask workers, checked for identical bytes and timed: `python -m benchmarks.tiled all`.

- `tiles` times single tiles.
- `same` decodes one raster in tiles of several sizes and as a whole.
- `kills` decodes while workers are killed.
- `speedup` compares two workers with one.
- `large` decodes 40,000 × 40,000 pixels with 8 labels on two workers of 4 GB.

Each command records its part, and `page` writes the results into docs/scale.md.
"""

import hashlib
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import zarr

import locpmap as lp
from benchmarks import machine, tiled_page
from benchmarks.report import write_record
from benchmarks.synthetic_raster import SyntheticRaster
from locpmap.scale import Summary, TiledResult

RECORD = Path(__file__).parent / "results" / "tiled.json"
SEED = 0
WEIGHT, MAX_SWEEPS, N_SAMPLES = 1.0, 32, 4
BAND = 1000  # rows per read of a digest

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
Record = Annotated[Path, typer.Option(help="JSON file of the results.")]
Scratch = Annotated[Path | None, typer.Option(help="Folder for the outputs; a temporary one by default.")]
Size = Annotated[int, typer.Option(help="Number of rows and of columns.")]


@app.command()
def same(size: Size = 2500, record: Record = RECORD, scratch: Scratch = None) -> None:
    """Compare the digests of results in tiles of 256, 777 and 1,000 pixels and of the whole raster."""
    found: dict[str, str] = {}
    with folder(scratch) as at:
        for tile in (256, 777, 1000):
            decoded(size, tile).write(at / f"{tile}.zarr")
            found[f"tiles of {tile}"] = digest(at / f"{tile}.zarr")
        whole = lp.infer(
            lp.Potentials.grid(SyntheticRaster(size, size, SEED)[:, :], WEIGHT),
            "locpmap",
            seed=SEED,
            n_samples=N_SAMPLES,
            max_sweeps=MAX_SWEEPS,
            device="cpu",
        )
        group = zarr.create_group(at / "whole.zarr")
        for name in ("labels", "probability", "variance", "entropy"):
            values = getattr(whole, name)
            group.create_array(name, data=values.astype("int16") if name == "labels" else values)
        found["the whole, by lp.infer"] = digest(at / "whole.zarr")
    note(record, "same", {"size": size, "sha256": found, "equal": len(set(found.values())) == 1})


@app.command()
def kills(size: Size = 2000, n_kills: int = 5, record: Record = RECORD, scratch: Scratch = None) -> None:
    """Compare the digests of results with and without workers that are killed at random moments."""
    with folder(scratch) as at:
        decoded(size, 250).write(at / "undisturbed.zarr")
        with cluster(0) as client, UnreliableWorkers(client, n_kills) as workers:
            summary = decoded(size, 250).write(at / "killed.zarr", scheduler=client, progress=workers.kill)
        digests = {"undisturbed": digest(at / "undisturbed.zarr"), "with losses": digest(at / "killed.zarr")}
    content = {"size": size, "kills": workers.n_killed, "seconds": summary.seconds, "sha256": digests}
    note(record, "kills", {**content, "equal": len(set(digests.values())) == 1})


@app.command()
def speedup(size: Size = 2500, rounds: int = 3, record: Record = RECORD, scratch: Scratch = None) -> None:
    """Measure pixels per second of one worker and of two, alternating."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    with folder(scratch) as at:
        for number in range(rounds):
            for n_workers, found in rates.items():
                with cluster(n_workers) as client:
                    warm(client)
                    out = at / f"{number}.{n_workers}.zarr"
                    found.append(decoded(size, 500).write(out, scheduler=client).pixels_per_second)
                    shutil.rmtree(out)
    one, two = (statistics.median(found) for found in rates.values())
    ratios = [b / a for a, b in zip(rates[1], rates[2], strict=True)]
    content = {"size": size, "pixels_per_second": {"1": one, "2": two}, "rounds": {str(n): r for n, r in rates.items()}}
    note(record, "speedup", {**content, "ratio": statistics.median(ratios), "ratios": ratios})


@app.command()
def large(
    size: Size = 40_000,
    tile: int = 2000,
    limit: Annotated[str, typer.Option(help="Memory limit of each worker.")] = "4GB",
    record: Record = RECORD,
    scratch: Scratch = None,
) -> None:
    """Decode a raster larger than memory on two workers; with --scratch, an interrupted run resumes."""
    with folder(scratch) as at, cluster(2, limit) as client:
        warm(client)
        out = at / "large.zarr"

        def progress(done: int, total: int, rate: float) -> None:
            if done % 20 == 0 or done == total:
                print(f"{done} of {total} tiles, {rate:,.0f} pixels per second", flush=True)

        summary = decoded(size, tile).write(out, arrays=("labels", "entropy"), scheduler=client, progress=progress)
        peaks = sorted(client.run(peak_bytes).values())
        stored = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        content = {"size": size, "tile": tile, "memory_limit": limit, **summary_of(summary), "peak_bytes": peaks}
        note(record, "large", {**content, "stored_bytes": stored, "sha256": digest(out)})


@app.command()
def tiles(record: Record = RECORD) -> None:
    """Measure time and memory of one tile on one core, by size of the tile."""
    rows = []
    for tile, n_samples in ((256, N_SAMPLES), (512, N_SAMPLES), (1024, N_SAMPLES), (1024, 50), (2048, N_SAMPLES)):
        result = decoded(40_000, tile, n_samples)
        one = result.tiling.tile(1, 1)
        scores, seconds = SyntheticRaster(40_000, 40_000, SEED)[one.window.slices], []
        for _ in range(3):
            began = time.process_time()  # processor time excludes other programs
            result.decoding(one, None, scores)
            seconds.append(time.process_time() - began)
        pixels = one.core.shape[0] * one.core.shape[1]
        measured = {"pixels_per_second": pixels / min(seconds), "peak_bytes": peak_bytes()}
        rows.append({"tile": tile, "n_samples": n_samples, **measured})
    note(record, "tiles", {"rows": rows, "halo": result.tiling.reach.halo[0]})


@app.command()
def all(record: Record = RECORD, scratch: Scratch = None) -> None:
    """Run all measurements, in about an hour on two cores."""
    tiles(record)
    same(record=record, scratch=scratch)
    kills(record=record, scratch=scratch)
    speedup(record=record, scratch=scratch)
    large(record=record, scratch=scratch)


@app.command()
def page(record: Record = RECORD) -> None:
    """Write the results into docs/scale.md."""
    tiled_page.write(record)


def decoded(size: int, tile: int, n_samples: int = N_SAMPLES) -> TiledResult:
    """Return the lazy result of a raster of the given size; nothing is decoded yet."""
    raster = SyntheticRaster(size, size, SEED)
    return lp.infer_tiled(raster, WEIGHT, tile=tile, seed=SEED, n_samples=n_samples, max_sweeps=MAX_SWEEPS)


def digest(path: Path) -> str:
    """Return the SHA-256 of all arrays of a group in row order, independent of their chunks."""
    total = hashlib.sha256()
    group = zarr.open_group(path, mode="r")
    for name in sorted(set(group.array_keys()) - {"tiles"}):
        array: Any = group[name]
        total.update(name.encode())
        for top in range(0, array.shape[0], BAND):
            total.update(array[top : top + BAND].tobytes())
    return total.hexdigest()


@contextmanager
def cluster(n_workers: int, memory_limit: str = "4GB") -> Iterator[Any]:
    """Start workers of one thread on this machine, which are restarted when they are lost, and yield a client."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, memory_limit=memory_limit, dashboard_address=":0"
        ) as workers,
        Client(workers) as client,
    ):
        yield client


def warm(client: Any) -> None:
    """Load the kernels in every worker."""
    client.run(decode_a_little)


def decode_a_little() -> None:
    """Decode one small tile."""
    result = decoded(300, 100)
    tile = result.tiling.tile(1, 1)
    result.decoding(tile, None, SyntheticRaster(300, 300, SEED)[tile.window.slices])


class UnreliableWorkers:
    """Two workers, of which a random one is repeatedly killed and replaced after a random number of tiles."""

    def __init__(self, client: Any, n_kills: int) -> None:
        self.client, self.n_kills, self.n_killed = client, n_kills, 0
        self._random, self._next = random.Random(SEED), 1

    def __enter__(self) -> "UnreliableWorkers":
        self._alive = [self._start(), self._start()]
        self.client.wait_for_workers(2)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._alive:
            worker.kill()
            worker.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        address = self.client.scheduler.address
        words = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1"]
        return subprocess.Popen([*words, "--no-dashboard"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, done: int, total: int, rate: float) -> None:
        """Kill a worker when its time has come; called after every tile."""
        if self.n_killed == self.n_kills or done < self._next:
            return
        which = self._random.randrange(2)
        self._alive[which].kill()
        self._alive[which].wait()
        self._alive[which] = self._start()
        self.n_killed += 1
        self._next = done + self._random.randint(1, max(1, total // (2 * self.n_kills)))


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def summary_of(summary: Summary) -> dict[str, Any]:
    """Return the summary of a run for the record."""
    return {**vars(summary), "pixels_per_second": summary.pixels_per_second}


@contextmanager
def folder(scratch: Path | None) -> Iterator[Path]:
    """Yield the given folder, or a temporary one that is removed at the end."""
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
        yield scratch
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def note(path: Path, part: str, content: dict[str, Any]) -> None:
    """Replace one part of the record and print it."""
    record = json.loads(path.read_text()) if path.exists() else {}
    record.pop("targets", None)
    options = {"weight": WEIGHT, "max_sweeps": MAX_SWEEPS, "n_samples": N_SAMPLES}
    record[part] = {**machine.provenance("benchmarks.tiled", SEED, machine.machine()), **options, **content}
    write_record(path, record, [])
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    app()
