"""The example images of a run: a few test images decoded by every decoder."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import LocpmapError
from locpmap.formats import write_bytes
from locpmap_paper.experiments.decoders import Listed
from locpmap_paper.experiments.rows import Subject

Array = npt.NDArray[Any]

N_PICTURES = 8
KINDS = {"truth": np.int8, "labels": np.int8, "probability": np.float16, "variance": np.float16}


def draw_pictures(subject: Subject, decoders: Sequence[Listed], n_images: int) -> dict[str, Array]:
    """Return labels (n, H, W) per decoder and, for LocPMAP, probability and variance of the foreground (n, H, W).

    If several labels are pictured, return their probabilities (n, H, W, k) and the total variance over all labels.  The
    results equal those of the whole batch, because noise is keyed by the index of the image.
    """
    pictures: dict[str, Array] = {}
    for decoder in decoders:
        try:
            labels, probability, *_ = subject.decode(decoder, n_images)
        except LocpmapError:  # the reason is in its row
            continue
        pictures[f"{decoder.name}/labels"] = labels
        if decoder.family == "locpmap" and probability is not None:
            shown = subject.case.experiment.pictured
            variance = probability * (1 - probability)
            several = len(shown) > 1
            pictures[f"{decoder.name}/probability"] = probability[..., shown if several else shown[0]]
            pictures[f"{decoder.name}/variance"] = variance.sum(-1) if several else variance[..., shown[0]]
    return pictures


def write_pictures(path: Path, pictures: Mapping[str, Array]) -> None:
    """Write one file of arrays; the last part of a name determines the precision."""
    buffer = io.BytesIO()
    kinds = {name: KINDS.get(name.rpartition("/")[2], np.asarray(array).dtype) for name, array in pictures.items()}
    plain = {name: np.asarray(array).astype(kinds[name]) for name, array in pictures.items()}
    np.savez_compressed(buffer, **plain)  # type: ignore[arg-type]
    write_bytes(path, [buffer.getvalue()])
