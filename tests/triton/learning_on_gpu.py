"""Learn with processes that share a GPU, or with one process by NCCL: a script, run once per process."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

import locpmap as lp
from locpmap import nn
from locpmap.learning import Processes, joined_processes
from locpmap.learning.processes import JoinedProcesses, _join

OBJECTIVES = ("pseudolikelihood", "composite", "consistent")
RECIPE = nn.Recipe(20, 0.05, optimiser="sgd")
TIMEOUT = timedelta(minutes=2)


def learn(processes: Processes) -> dict[str, Any]:
    """Return the weights of a CRF for every objective."""
    rng = np.random.default_rng(0)
    labels = np.stack([np.roll([[0, 0, 1, 1, 2, 2, 2]] * 6, k, axis=1) for k in range(12)])
    images = (labels + rng.normal(size=labels.shape)).astype(np.float32)
    options = lp.learning.FitOptions(processes=processes, max_iterations=8)
    how: dict[str, Any] = {"device": "cuda", "options": options}
    return {name: lp.CRF(3).fit(images, labels, name, **how).w for name in OBJECTIVES}


def train(processes: Processes) -> dict[str, Any]:
    """Return the weights of a trained network, and their change in training."""
    torch.manual_seed(0)
    head = nn.CRFHead(2, feature_channels=4, objective="pseudolikelihood")
    network = nn.CRFNetwork(nn.FCN(widths=(3, 4)), head).cuda()

    def draw(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(2, (6, 1, 1), generator=generator, device="cuda").repeat(1, 8, 9)
        return (labels + torch.randn(labels.shape, generator=generator, device="cuda"))[:, None], labels

    before = _flat(network)
    nn.train(network, draw, RECIPE, processes=processes)
    return {"network": _flat(network), "moved": _flat(network) - before}


def _flat(network: torch.nn.Module) -> np.ndarray:
    return torch.cat([value.detach().flatten() for value in network.parameters()]).cpu().numpy()


def main(kind: str, file: Path) -> None:
    """Learn and save the results; ``kind`` is "alone", "nccl" (a group of one) or "shared" (started by torchrun)."""
    if kind == "nccl":
        _join(0, 1, TIMEOUT)
        assert "cuda:nccl" in torch.distributed.get_backend_config()
        processes: Processes = JoinedProcesses(TIMEOUT)
        np.savez(file, **learn(processes), **train(processes))
        torch.distributed.destroy_process_group()
        return
    with joined_processes() as processes:
        numbers = learn(processes) | train(processes)
        if processes.first:
            np.savez(file, **numbers)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
