"""Refined labels and label areas of one image in one pass over its samples, for the command line and the viewer."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.errors import InputError
from locpmap.graphs import Volume
from locpmap.guarantees import Guarantee
from locpmap.inference import LocPMAP
from locpmap.inference.samples import stream_samples
from locpmap.kernels.model import QUANTUM
from locpmap.kernels.threads import available_threads
from locpmap.measuring import Measurement
from locpmap.measuring.quantities import named_quantity, unit_of
from locpmap.refining.prepared import Prepared, averaged
from locpmap.result import Result

LEVELS = (0.05, 0.5, 0.95)


class Drawn(NamedTuple):
    """A refined image or volume with its samples."""

    result: Result
    areas: Measurement  # "area" of each label in every sample, or the "volume" in a volume
    maps: Array  # (m, H, W) the first sampled maps


def draw(
    prepared: Prepared,
    decoder: LocPMAP,
    max_maps: int = 0,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Drawn:
    """Refine one image, and measure the areas in samples with the learned errors.

    ``progress(done, total)`` is called after every few samples. If the refiner has no error fields, its labels and its
    areas come from different samples, which are drawn one after the other.
    """
    counted = any(prepared.errors.sizes)
    sampler = replace(prepared.sampler(decoder), probability="votes")
    chunk, n_labels = QUANTUM * available_threads(), prepared.potentials.n_labels
    parts = stream_samples(prepared.potentials, sampler, chunk, seed, device=device, counted=counted)
    structure = prepared.potentials.structure
    quantity = "volume" if isinstance(structure, Volume) else "area"
    measured = named_quantity(quantity, structure, n_labels)
    areas: list[Array] = []
    maps: list[Array] = []
    while True:
        try:
            part = Restore()(next(parts))
        except StopIteration as end:
            result = end.value
            break
        areas += [measured(labels.astype(np.int64)) for labels in part]
        maps += list(part[: max(0, max_maps - len(maps))])
        if progress is not None:
            progress(len(areas), decoder.n_samples)
    if counted:
        result = averaged(prepared.potentials, result, decoder, prepared.errors.votes, prepared.marginals)
        result = prepared.named(result, decoder)
    else:
        result = prepared.refine(decoder, seed=seed, device=device)
    values, names = np.stack(areas).astype(np.float64), tuple(map(str, range(n_labels)))
    source, unit = prepared.source_of_samples(decoder), unit_of(quantity, structure)
    sizes = Measurement(quantity, values, names, LEVELS, source, unit)
    return Drawn(result, sizes, np.stack(maps) if maps else np.empty((0, 0, 0), np.int16))


def interval_of(areas: Measurement, level: float, guarantee: Guarantee | None) -> tuple[Array, Array, bool]:
    """Return the ends of the guaranteed interval, or of that of the samples, and whether it is guaranteed.

    There is no guarantee if none is given, or if it does not apply to these samples: it is of another model, decoder or
    kind of input, has no areas or other labels, or there are too few samples or calibration images.
    """
    if guarantee is not None:
        with suppress(InputError):
            return *areas.interval(level, guarantee=guarantee), True
    return *areas.interval(level), False
