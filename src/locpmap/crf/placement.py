"""Where to learn when nobody says so: on the CPU, or on a GPU where that pays."""

from __future__ import annotations

from typing import Any

from locpmap.arrays import on_gpu
from locpmap.kernels.placement import FITTING, Job, gpu_pays, place_learning
from locpmap.learning.batches import Source
from locpmap.learning.processes import Processes

ROOM = 3  # memory on the device, as multiples of the data: themselves, and what samples are drawn with


def place_fit(inputs: Any, source: Source, n_labels: int, kernels: Any, processes: Processes) -> Any:
    """The GPU's kernels for inputs that lie there, or whose fit is long enough; else the CPU's, which are given.

    What is read anew in every pass stays on the CPU, and so do several processes, which must all choose the same.
    """
    if processes.size > 1:
        return kernels
    first = inputs[0] if isinstance(inputs, list) and inputs else inputs
    home = first.device.type if on_gpu(first) else None
    return place_learning("auto", "cuda") if home == "cuda" or fit_pays(source, n_labels) else kernels


def fit_pays(source: Source, n_labels: int) -> bool:
    """Whether data in memory are better learned from on this machine's GPU."""
    if not isinstance(source, list):
        return False
    scores = n_labels * sum(batch.labels.size for batch in source)
    arrays = (a for b in source for a in (b.features.unary, b.features.pairwise, b.labels, b.site_weights))
    return gpu_pays(Job(None, scores, ROOM * sum(array.nbytes for array in arrays), FITTING))
