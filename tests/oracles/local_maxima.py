"""``Loc[θ~; B]``, the local maxima of a perturbed score, by enumeration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .enumeration import Enumeration
from .models import Floats

CHUNK = 1000  # draws per step, to limit the memory of the perturbed scores


def local_maxima(model: Enumeration, blocks: Sequence[Sequence[int]], noise: Sequence[Floats]) -> npt.NDArray[np.bool_]:
    """Return which labellings are local maxima in which draw, (N, D).

    ``noise[b]`` (D, L**|block b|) perturbs every joint labelling of the block, the last site fastest.
    ``y ∈ Loc`` iff in every block y_β has the largest perturbed score among the labellings that agree with y
    elsewhere.  Forbidden labellings are never maxima.  Time O(N · D · number of blocks).
    """
    n_draws = len(noise[0])
    member = np.repeat((model.scores > -np.inf)[:, None], n_draws, axis=1)
    for block, perturbation in zip(blocks, noise, strict=True):
        index = model.block_index(block)
        scores = model.scores[index][:, :, None]
        for start in range(0, n_draws, CHUNK):
            draws = slice(start, start + CHUNK)
            perturbed = scores + perturbation[draws].T[:, None, :]  # (L**|block|, rest, draws)
            member[index, draws] &= perturbed == perturbed.max(axis=0)
    return member
