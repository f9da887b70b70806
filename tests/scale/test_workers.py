"""Tiled runs on a Dask scheduler: the same bytes, also if workers are lost."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputError, InputTypeError
from locpmap.scale import workers as crews
from locpmap.scale.workers import Threads, each, value_of, workers

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")

OPTIONS: dict[str, Any] = {"seed": 3, "max_sweeps": 8, "n_samples": 20, "tile": 25}


def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(200, 150, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start two processes with one thread each, which are restarted when they are lost."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "2GB"}
    with dask.config.set({"distributed.comm.timeouts.connect": "20s"}), distributed.LocalCluster(**options) as cluster:
        yield cluster


def check(path: Path) -> None:
    whole = lp.infer(lp.Potentials.grid(scores(), 1.0), **{k: v for k, v in OPTIONS.items() if k != "tile"})
    group = zarr.open_group(path, mode="r")
    for name in ("labels", "probability", "variance", "entropy"):
        np.testing.assert_array_equal(group[name][:], getattr(whole, name))


def test_lost_workers_do_not_change_the_result(cluster: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", scores())
    tiled = lp.infer_tiled(np.load(tmp_path / "scores.npy", mmap_mode="r"), 1.0, **OPTIONS)
    lost: list[int] = []
    with distributed.Client(cluster) as client:

        def kill(done: int, total: int, rate: float) -> None:
            found = list(client.run(os.getpid, on_error="ignore").values())
            if len(found) == 2 and len(lost) < 2 and done >= 3 + 20 * len(lost):  # leave one worker alive
                os.kill(found[0], signal.SIGKILL)
                lost.append(found[0])

        summary = tiled.write(tmp_path / "out.zarr", scheduler=client, progress=kill)
    assert lost
    assert summary.tiles == 48
    check(tmp_path / "out.zarr")


def test_scheduler_address_and_dask_source(cluster: Any, tmp_path: Path) -> None:
    import dask.array as da

    lazy = da.from_array(scores(), chunks=(64, 50, 3))
    with workers(cluster.scheduler_address) as crew:
        assert crew.dashboard is not None
        assert crew.dashboard.startswith("http")
    lp.infer_tiled(lazy, 1.0, **OPTIONS).write(tmp_path / "out.zarr", scheduler=cluster.scheduler_address)
    check(tmp_path / "out.zarr")


def test_error_on_a_worker_has_the_same_message(cluster: Any, tmp_path: Path) -> None:
    bad = scores()
    bad[100, 100] = np.nan
    with pytest.raises(InputError, match=r"in the window of rows .* contains nan"):
        lp.infer_tiled(bad, 1.0, **OPTIONS).write(tmp_path / "out.zarr", scheduler=cluster.scheduler_address)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".npy", ".png")}


def test_workers_share_the_files_of_a_folder(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use relative paths, which workers cannot resolve."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("images", "logits"):
        Path(name).mkdir()
    for stem in "abc":
        np.save(f"images/{stem}.npy", rng.integers(0, 255, (12, 15)))
        np.save(f"logits/{stem}.npy", rng.normal(size=(12, 15, 3)))
    scores = [np.load(f"logits/{stem}.npy") for stem in "abc"]
    crf = lp.CRF(3, features=lp.features.GivenUnary(3), potts=True)
    crf.fit([((one, None), one.argmax(-1)) for one in scores], options=lp.learning.FitOptions(standard_errors=False))
    crf.save("crf.safetensors")
    refine = ("refine", "images", "logits", "--keep", "labels,overlay,probability,variance,entropy")
    for command in (refine, ("predict", "crf.safetensors", "--unary", "logits", "--keep", "labels,probability")):
        alone = Run(capsys, *command, "-o", "alone")
        assert alone.status == 0, alone.err
        shared = Run(capsys, *command, "-o", "shared", "--scheduler", cluster.scheduler_address)
        assert shared.status == 0, shared.err
        assert shared.err.startswith("dashboard: http")
        assert files(Path("alone")) == files(Path("shared"))
        assert len(files(Path("alone"))) == 3 * (5 if command[0] == "refine" else 2)
        shutil.rmtree("alone")
        shutil.rmtree("shared")
    np.save("logits/b.npy", np.full((12, 15, 3), np.nan))
    bad = Run(capsys, "refine", "images", "logits", "-o", "shared", "--scheduler", cluster.scheduler_address)
    assert bad.status == 2
    assert "b.npy" in bad.err
    assert {name[0] for name in files(Path("shared"))} == {"a", "c"}


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        (
            "tcp://127.0.0.1:1",
            InputError,
            "scheduler tcp://127.0.0.1:1 does not answer, expected the address",
        ),
        ("nowhere://x", InputError, "scheduler is 'nowhere://x', expected the address of a Dask scheduler"),
        (5, InputTypeError, "scheduler is a int, expected an address or a Client"),
    ],
)
def test_missing_schedulers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: Any, error: type[Exception], message: str
) -> None:
    monkeypatch.setattr(crews, "CONNECT_SECONDS", 1)
    with pytest.raises(error, match=message):
        lp.infer_tiled(scores(), 1.0, **OPTIONS).write(tmp_path / "out.zarr", scheduler=address)
    assert not list(tmp_path.iterdir())


def test_unusable_clients_are_refused_before_writing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiled = lp.infer_tiled(scores(), 1.0, **OPTIONS)
    with distributed.Client(cluster, set_as_default=False) as closed:
        pass
    with pytest.raises(InputError, match="scheduler is a Client that is closed, expected one that is running"):
        tiled.write(tmp_path / "out.zarr", scheduler=closed)
    monkeypatch.setattr(crews, "FIRST_WORKER_SECONDS", 0.1)
    options = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as empty,
        distributed.Client(empty, set_as_default=False) as client,
        pytest.raises(InputError, match=r"scheduler .* has no workers, expected at least one"),
    ):
        tiled.write(tmp_path / "out.zarr", scheduler=client)
    assert not list(tmp_path.iterdir())


def test_closing_the_client_ends_the_run(cluster: Any, tmp_path: Path) -> None:
    tiled = lp.infer_tiled(scores(), 1.0, **OPTIONS)
    with (
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(InputError, match="the scheduler or its Client was closed, expected them to be open"),
    ):
        tiled.write(tmp_path / "out.zarr", scheduler=client, progress=lambda *_: client.close())
    assert tiled.write(tmp_path / "out.zarr").kept > 0
    check(tmp_path / "out.zarr")


def test_missing_device_is_refused_before_writing(cluster: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    tiled = lp.infer_tiled(scores(), 1.0, device="cuda", **OPTIONS)
    for scheduler in (None, cluster.scheduler_address):
        with pytest.raises(lp.BackendError, match="need an NVIDIA GPU"):
            tiled.write(tmp_path / "out.zarr", scheduler=scheduler)
    with pytest.raises(lp.BackendError, match=r"^device='cuda' and backend='triton' need an NVIDIA GPU"):
        tiled.labels.compute()
    assert not list(tmp_path.iterdir())


def test_number_of_running_jobs_is_bounded(tmp_path: Path) -> None:
    lock, under_way, most, submitted = threading.Lock(), 0, 0, 0

    def work(n: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1
        return n * n

    def job(n: int) -> Any:
        nonlocal submitted
        submitted += 1
        return dask.delayed(work, pure=False)(n)

    found = {}
    for n, (task, future) in enumerate(each(Threads(3), range(30), job)):
        found[task] = value_of(future)
        assert submitted <= n + 1 + 2 * 3
    assert found == {n: n * n for n in range(30)}
    assert most == 3


class KilledWorker(Exception):
    """An exception with the name of dask's."""


class Unlucky:
    """Workers that die a given number of times with each job."""

    dashboard = None
    at_once = 2
    alive = True

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.started: list[int] = []

    def submit(self, job: Any) -> Any:
        future: Any = Future()
        self.started.append(job())
        future.status = "error" if self.started.count(job()) <= self.deaths else "finished"
        if future.status == "error":
            future.set_exception(KilledWorker())
        else:
            future.set_result(job())
        return future

    def drop(self, futures: Any) -> None:
        """Do nothing, since all jobs have ended."""


def test_jobs_of_lost_workers_are_restarted_a_few_times() -> None:
    crew = Unlucky(deaths=4)
    assert sorted(value_of(future) for _, future in each(crew, range(3), lambda n: partial(int, n))) == [0, 1, 2]  # type: ignore
    assert sorted(crew.started) == [0] * 5 + [1] * 5 + [2] * 5
    with pytest.raises(KilledWorker):
        [value_of(future) for _, future in each(Unlucky(deaths=99), range(3), lambda n: partial(int, n))]  # type: ignore


class Gone(Unlucky):
    """Workers that are all lost, so that jobs never end."""

    alive = False

    def submit(self, job: Any) -> Any:
        return Future()


class Late(Unlucky):
    """Workers that are missing at the first check, and have completed all jobs at the second."""

    def submit(self, job: Any) -> Any:
        self.waiting = [*getattr(self, "waiting", []), (Future[int](), job)]
        return self.waiting[-1][0]

    @property
    def alive(self) -> bool:  # type: ignore[override]
        self.deaths += 1
        if self.deaths == 2:
            for future, job in self.waiting:
                future.set_result(job())
        return self.deaths >= 2


def test_waiting_ends_if_all_workers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "FIRST_WORKER_SECONDS", 0.01)
    with pytest.raises(InputError, match="has no workers any more, expected at least one: run again to resume"):
        list(each(Gone(0), range(3), lambda n: partial(int, n)))  # type: ignore
    assert sorted(value_of(future) for _, future in each(Late(0), range(2), lambda n: partial(int, n))) == [0, 1]  # type: ignore
    with workers(None, 1) as crew:  # a slow job is waited for while workers are alive
        assert [value_of(future) for _, future in each(crew, [0.05], lambda s: partial(time.sleep, s))] == [None]
