"""Kernels compile; the interpreter does not check this."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_every_kernel_compiles(tmp_path: Path) -> None:
    alone = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.triton.compiling"]
    done = subprocess.run(
        command, env=os.environ | alone, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
