"""Compiled kernels are cached on disk, and no state of that cache is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")
caching = pytest.importorskip("numba.core.caching")
compiling = pytest.importorskip("locpmap.kernels.numba.compiling")


def double(x: int) -> int:
    return 2 * x


def compiled() -> Any:
    """Return the statistics of a new kernel after one call."""
    kernel = compiling.kernel(double)
    assert kernel(21) == 42
    return kernel.stats


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def test_kernels_are_cached(folder: Path) -> None:
    assert not compiled().cache_hits
    stats = compiled()
    assert sum(stats.cache_hits.values()) == 1
    assert Path(stats.cache_path).parent == folder


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"\x80", b"damaged"])
def test_damaged_files_are_replaced(folder: Path, kind: str, content: bytes) -> None:
    compiled()
    (damaged,) = folder.rglob(f"*.{kind}")
    damaged.write_bytes(content)
    assert not compiled().cache_hits
    assert compiled().cache_hits


@pytest.mark.parametrize("damaged", [True, False])
def test_full_disk_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool) -> None:
    if damaged:
        compiled()
        next(folder.rglob("*.nbi")).write_bytes(b"damaged")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
    assert not compiled().cache_hits


def test_kernels_run_without_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    assert compiled().cache_path is None
    assert not any(folder.rglob("*.nbi"))


def test_numba_without_compilation_is_refused() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "import locpmap as lp; lp.infer(lp.Potentials.grid([[[0, 1]]], 0.0))"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert "BackendError: NUMBA_DISABLE_JIT is set, expected it unset" in answer.stderr
