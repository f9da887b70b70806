"""``locpmap compile``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.command import Run

SCRIPT = """
import sys
import numpy as np
import locpmap as lp
from locpmap.cli.compile import JOBS, run

def loaded():
    modules = [module for name, module in sys.modules.items() if name.startswith("locpmap.kernels.numba.")]
    functions = {value for module in modules for value in vars(module).values() if hasattr(value, "signatures")}
    return {(str(function), str(signature)) for function in functions for signature in function.signatures}

for job in JOBS:
    run(job)
before = loaded()
rng = np.random.default_rng(0)
for n_labels in (2, 5):
    logits = rng.normal(size=(13, 17, n_labels))
    result = lp.refine(rng.integers(0, 255, (52, 68, 3), np.uint8), logits)
    result.decide("iou")
    lp.Refiner.load().measure(None, logits, "area", layout="hwk")
    for dtype in (np.float32, np.float64):
        lp.infer(lp.Potentials.grid(logits.astype(dtype), 0.5), lp.LocPMAP(10))
print(len(before), sorted(loaded() - before))
"""


def test_command_compiles_in_other_processes(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Run(capsys, "compile")
    assert answer.status == 0
    assert answer.out.startswith("the kernels are compiled (")


def test_folder_must_be_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)
    Run(capsys, "compile").check_refusal(f"{tmp_path} cannot be written", "NUMBA_CACHE_DIR")


def test_later_calls_find_their_kernels_compiled() -> None:
    """Run a new process, in which no other test has loaded kernels."""
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    n_compiled, missing = answer.strip().split(" ", 1)
    assert int(n_compiled) > 8
    assert missing == "[]"
