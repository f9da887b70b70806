"""Where learning takes place when nobody says so."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.crf import placement
from locpmap.crf.placement import place_fit
from locpmap.features import Features
from locpmap.kernels import placement as decoding
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.learning.batches import Batch
from locpmap.learning.processes import ALONE, Processes

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


def data(n_images: int) -> list[Batch]:
    features = Features.grid(np.zeros((n_images, 64, 64, 1), np.float32))
    return [Batch(features, np.zeros((n_images, 64 * 64), np.int16), np.ones((1, 1)))]


LARGE, SMALL = data(512), data(511)  # of 2^22 and a little fewer scores


@pytest.fixture
def cpu() -> CpuKernels:
    return CpuKernels("numba")


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with a GPU, of which the backend's name says what was chosen, though nothing can run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(placement, "place_learning", lambda *names: CpuKernels(" ".join(names)))


@pytest.mark.usefixtures("_gpu")
def test_large_fits_go_to_a_gpu_and_small_ones_stay(cpu: CpuKernels) -> None:
    assert place_fit(None, LARGE, 2, cpu, ALONE).name == "auto cuda"
    assert place_fit(None, SMALL, 2, cpu, ALONE) is cpu
    assert place_fit(None, SMALL, 3, cpu, ALONE).name == "auto cuda"
    assert place_fit(None, iter(LARGE), 2, cpu, ALONE) is cpu


@pytest.mark.usefixtures("_gpu")
def test_fits_that_do_not_fit_and_those_of_several_processes_stay(
    cpu: CpuKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Processes()
    two.size = 2
    assert place_fit(None, LARGE, 2, cpu, two) is cpu
    sizes = [LARGE[0].features.unary.nbytes, LARGE[0].labels.nbytes]
    for share, chosen in ((4.0, "auto cuda"), (2.0, "numba")):
        monkeypatch.setattr(decoding, "free_bytes", lambda cuda, share=share: share * sum(sizes))
        assert place_fit(None, LARGE, 2, cpu, ALONE).name == chosen


@pytest.mark.usefixtures("_gpu")
def test_tensors_on_a_gpu_are_learned_from_there(cpu: CpuKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(placement, "on_gpu", lambda value: value is on_gpu)
    assert place_fit(on_gpu, SMALL, 2, cpu, ALONE).name == "auto cuda"
    assert place_fit([on_gpu], SMALL, 2, cpu, ALONE).name == "auto cuda"
    assert place_fit([np.zeros(2)], SMALL, 2, cpu, ALONE) is cpu


def test_a_choice_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def place(*given: Any) -> CpuKernels:
        asked.append(given)
        kernels: CpuKernels = given[3]
        return kernels

    monkeypatch.setattr("locpmap.crf.crf.place_fit", place)
    images, labels = np.arange(12.0).reshape(3, 2, 2), np.arange(12).reshape(3, 2, 2) % 2
    choices: list[dict[str, Any]] = [{"device": "cpu"}, {"backend": "numba"}, {"backend": "reference"}]
    for options in choices:
        lp.CRF(2).fit(images, labels, max_iterations=1, **options)
    assert not asked
    lp.CRF(2).fit(images, labels, max_iterations=1)
    assert len(asked) == 1


def test_torch_is_not_imported_for_a_fit_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(decoding, "DRIVER", Path("/"))
    monkeypatch.setattr(decoding, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not placement.fit_pays(LARGE, 2)


def test_torch_is_not_imported_where_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(decoding, "DRIVER", Path("/nowhere"))
    monkeypatch.setattr(decoding, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not decoding.gpu_has_room(0)
