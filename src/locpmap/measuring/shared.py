"""Errors that all sites share.

Whoever takes a meadow for a field does so everywhere in an image.  Noise of its own for every site knows nothing of
that: over an image it averages out, and an area looks far surer than it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen, place_beside, to_numpy
from locpmap.inference import LocPMAP, infer
from locpmap.potentials import Potentials

Array = npt.NDArray[Any]
MOST = 1 << 24  # scores that copies of an image hold at a time


def shared_samples(
    image: Potentials, decoder: LocPMAP, shared: float, number: int, seed: int, settings: dict[str, Any]
) -> Iterator[Array]:
    """Samples (S,) of one image, each of potentials of its own: with N(0, shared²) added to the scores of each label.

    Args:
        image: Potentials without a batch axis.
        decoder: LocPMAP, with the number of samples to draw.
        shared: The standard deviation.
        number: Of the image; with the seed it keys all noise.
        seed: The seed.
        settings: Others of :func:`locpmap.infer`.
    """
    rng = np.random.default_rng([seed, number])
    offsets = shared * rng.normal(size=(decoder.n_samples, 1, image.n_labels))
    own_seed, once = int(rng.integers(2**62)), replace(decoder, n_samples=1)
    at_once = max(1, MOST // (image.n_sites * image.n_labels))
    for lo in range(0, decoder.n_samples, at_once):
        some = place_beside(image.unary, offsets[lo : lo + at_once].astype(np.float32))
        copies = replace(image, unary=frozen(image.unary + some), batched=True)
        if not isinstance(decoder.start, str):
            once = replace(once, start=np.broadcast_to(decoder.start, (len(some), *np.shape(decoder.start))))
        result = infer(copies, once, seed=own_seed, first_image=lo, **settings)
        yield from to_numpy(result.samples, "samples")[0].reshape(len(some), -1)
