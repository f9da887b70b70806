"""Collect these tests only where Triton's kernels can run: on a GPU, or with TRITON_INTERPRET=1."""

import os
from importlib.util import find_spec


def _can_run() -> bool:
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    import torch

    return torch.cuda.is_available()


collect_ignore_glob = [] if _can_run() else ["test_*.py"]

if os.environ.get("TRITON_INTERPRET") == "1" and not collect_ignore_glob:
    from tests.triton.fast_interpreter import speed_up

    speed_up()
