"""Processes started as torchrun would start them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more: object) -> dict[str, str]:
    """Return the environment without the variables of a surrounding torchrun, and with one thread per process."""
    kept = {name: text for name, text in os.environ.items() if not re.match("RANK|WORLD|LOCAL_|MASTER|TORCHEL", name)}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in more.items()}


def free_port() -> int:
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))
        return int(unbound.getsockname()[1])


def start(size: int, *fit_arguments: object) -> list[tuple[int, str, str]]:
    """Run Python in ``size`` processes as torchrun would; return status, output and errors of each."""
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [sys.executable, *map(str, fit_arguments)]
    running = [
        subprocess.Popen(
            command,
            env=environment(RANK=rank, LOCAL_RANK=rank, **common),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    said = [process.communicate(timeout=300) for process in running]
    return [(process.returncode, *texts) for process, texts in zip(running, said, strict=True)]
