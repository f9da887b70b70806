"""A network that several processes train together: torch's DistributedDataParallel on batches that they share out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from locpmap.errors import InputError
from locpmap.learning.processes import JoinedProcesses, Processes


def loss_together(network: torch.nn.Module, processes: Processes) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of a batch that all processes hold, each of which puts its part of the images through the network.

    Value and gradient are the means over the parts, weighted by their images: those of the whole batch, where its loss
    is the mean of its images' losses.  Batch normalisation sees the part alone.
    """
    if not isinstance(processes, JoinedProcesses):
        return network
    parallel = DistributedDataParallel(network)

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        if len(images) < processes.size:
            raise InputError(
                f"there are {processes.size} processes for the {len(images)} images of a batch, expected no more"
            )
        part = processes.part(len(images))
        share = (part.stop - part.start) / len(images)
        own = parallel(images[part], labels[part]) * (share * processes.size)  # gradients become their mean
        value = own.detach() / processes.size
        torch.distributed.all_reduce(value)
        return own + (value - own).detach()

    return loss
