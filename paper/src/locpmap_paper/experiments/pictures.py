"""A few test images as every decoder sees them: what the figures show."""

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
    """Labels (n, H, W) per decoder and, for LocPMAP, probability and variance of the foreground (n, H, W).

    Where several labels are pictured, their probabilities (n, H, W, k) and the variance of all labels together.
    An image comes out as in the whole batch, since noise is keyed by its place there.
    """
    pictures: dict[str, Array] = {}
    for decoder in decoders:
        try:
            labels, probability, *_ = subject.decode(decoder, n_images)
        except LocpmapError:  # its row says why
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
    """One file of plain arrays; the last word of a name says what it holds, and so how precisely."""
    buffer = io.BytesIO()
    kinds = {name: KINDS.get(name.rpartition("/")[2], np.asarray(array).dtype) for name, array in pictures.items()}
    plain = {name: np.asarray(array).astype(kinds[name]) for name, array in pictures.items()}
    np.savez_compressed(buffer, **plain)  # type: ignore[arg-type]
    write_bytes(path, [buffer.getvalue()])
