"""Where decoding takes place when nobody says so."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from locpmap.inference import placement
from locpmap.inference.exact import Exact
from locpmap.inference.icm import ICM
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels import Backend
from locpmap.potentials import Potentials

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

LARGE = Potentials.grid(np.zeros((512, 512, 4), np.float32), 1.0)
SMALL = Potentials.grid(np.zeros((8, 8, 4), np.float32), 1.0)


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with a GPU, of which the backend's name says what was chosen, though nothing can run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(placement, "choose_backend", lambda *names: Backend(" ".join(map(str, names))))


@pytest.mark.usefixtures("_gpu")
def test_large_jobs_go_to_a_gpu_and_small_ones_stay() -> None:
    assert placement.place(LARGE, LocPMAP(), "auto", "auto").name == "auto auto cuda"
    assert placement.place(SMALL, LocPMAP(), "auto", "auto").name == "auto auto None"
    assert placement.place(LARGE, LocPMAP(n_samples=1), "auto", "auto").name == "auto auto None"
    assert placement.place(LARGE, ICM(), "auto", "auto").name == "auto auto None"


@pytest.mark.usefixtures("_gpu")
def test_a_choice_stands() -> None:
    assert placement.place(LARGE, LocPMAP(), "auto", "cpu").name == "auto cpu None"
    assert placement.place(LARGE, LocPMAP(), "numba", "auto").name == "numba auto None"


@pytest.mark.usefixtures("_gpu")
def test_methods_of_the_cpu_stay_there() -> None:
    assert placement.place(LARGE, Exact(), "auto", "auto").name == "auto auto None"


def test_without_a_gpu_everything_stays() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert not placement.gpu_pays(LARGE, LocPMAP())
    assert placement.place(LARGE, LocPMAP(), "auto", "auto").device is None


def test_torch_is_not_imported_for_a_job_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(placement, "DRIVER", Path("/"))
    monkeypatch.setattr(placement, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not placement.gpu_pays(LARGE, LocPMAP())
