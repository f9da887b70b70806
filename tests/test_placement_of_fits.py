"""The device that fits choose by default."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.crf import fitting
from locpmap.crf.fitting import job_of
from locpmap.features import Features
from locpmap.kernels import placement
from locpmap.kernels.placement import Job, gpu_pays
from locpmap.learning.batches import Batch
from locpmap.learning.processes import ALONE, Processes

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


def zero_images(n_images: int) -> list[Batch]:
    features = Features.grid(np.zeros((n_images, 64, 64, 1), np.float32))
    return [Batch(features, np.zeros((n_images, 64 * 64), np.int16), np.ones((1, 1)))]


LARGE, SMALL = zero_images(512), zero_images(511)  # with two labels, exactly and slightly fewer than 2^22 scores


def default_device(job: Job) -> str:
    """Return the device that is chosen for a job by default."""
    return "cuda" if job.lies_on == "cuda" or gpu_pays(job) else "cpu"


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine has a GPU with unlimited memory; no kernel can run on it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(placement, "free_bytes", lambda cuda: math.inf)


@pytest.mark.usefixtures("_gpu")
def test_large_fits_use_the_gpu_and_small_fits_the_cpu() -> None:
    assert default_device(job_of(None, LARGE, 2, ALONE)) == "cuda"
    assert default_device(job_of(None, SMALL, 2, ALONE)) == "cpu"
    assert default_device(job_of(None, SMALL, 3, ALONE)) == "cuda"


@pytest.mark.usefixtures("_gpu")
def test_fits_beyond_gpu_memory_and_of_several_processes_use_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Processes()
    two.size = 2
    assert default_device(job_of(None, LARGE, 2, two)) == "cpu"
    features = LARGE[0].features
    sizes = (features.unary.nbytes, features.pairwise.nbytes, LARGE[0].labels.nbytes, LARGE[0].site_weights.nbytes)
    for share, chosen in ((4.0, "cuda"), (2.0, "cpu")):
        monkeypatch.setattr(placement, "free_bytes", lambda cuda, share=share: share * sum(sizes))
        assert default_device(job_of(None, LARGE, 2, ALONE)) == chosen


@pytest.mark.usefixtures("_gpu")
def test_fits_from_files_use_the_cpu(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LARGE[0].labels)
    on_disk = Batch(LARGE[0].features, np.load(tmp_path / "labels.npy", mmap_mode="r"), LARGE[0].site_weights)
    assert default_device(job_of(None, [on_disk], 2, ALONE)) == "cpu"


def test_fits_from_tensors_on_a_gpu_use_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(fitting, "on_gpu", lambda value: value is on_gpu)
    assert default_device(job_of(on_gpu, SMALL, 2, ALONE)) == "cuda"
    assert default_device(job_of([on_gpu], SMALL, 2, ALONE)) == "cuda"
    assert default_device(job_of([None], SMALL, 2, ALONE)) == "cpu"


def test_a_given_device_or_backend_is_accepted() -> None:
    images, labels = np.arange(12.0).reshape(3, 2, 2), np.arange(12).reshape(3, 2, 2) % 2
    choices: tuple[dict[str, Any], ...] = ({"device": "cpu"}, {"backend": "numba"}, {"backend": "reference"})
    for options in choices:
        lp.CRF(2).fit(images, labels, options=lp.learning.FitOptions(max_iterations=1), **options)


def test_torch_is_not_imported_for_a_short_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(placement, "DRIVER", Path("/"))
    monkeypatch.setattr(placement, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not gpu_pays(job_of(None, LARGE, 2, ALONE))


def test_torch_is_not_imported_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(placement, "DRIVER", Path("/nowhere"))
    monkeypatch.setattr(placement, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not placement.gpu_has_room(0)
