"""Gradients of losses with respect to pairwise scores, by torch operations; see the reference for the definition.

All sums are matrix products or sums along an axis, so results do not depend on the order of threads.
"""

from typing import Any

import torch

from locpmap.kernels.likelihood import Part, Scores
from locpmap.kernels.model import Array


def pair_gradient(
    scores: Scores, samples: Array, residual: Array, block_of: Array | None, gradient: Array, part: Part
) -> None:
    """Add the gradient of a part's edges to ``gradient``; allocates a table per edge unless the model is Potts."""
    lo, hi, begin, stop = part
    first, second = (scores.edges[begin:stop, end].long() for end in (0, 1))
    derivative: Any = 0
    for m in range(samples.shape[2]):
        here, there = samples[lo:hi, first, m].long()[..., None], samples[lo:hi, second, m].long()[..., None]
        at_first, at_second = residual[lo:hi, first, m], residual[lo:hi, second, m]
        if scores.potts:
            forth, back = (
                torch.where(label >= 0, part.gather(2, label.clamp(min=0)), 0)[..., 0]
                for part, label in ((at_first, there), (at_second, here))
            )
        else:
            each = torch.arange(residual.shape[3], device=residual.device)
            forth = at_first[..., :, None] * (there == each)[..., None, :]
            back = (here == each)[..., :, None] * at_second[..., None, :]
        derivative += forth + back
    if block_of is not None:
        derivative[:, block_of[first] == block_of[second]] = 0
    add_edge_gradients(scores, derivative, gradient, part)


def add_edge_gradients(scores: Scores, derivative: Array, gradient: Array, part: Part) -> None:
    """Add ``derivative``, (n, e) for Potts weights, else (n, e, L, L) with the first end's label first."""
    lo, hi, begin, stop = part
    if scores.potts:
        gradient[lo:hi, begin:stop] += derivative
        return
    n_images, n_edges, n_labels, _ = derivative.shape
    features = scores.features[lo:hi] if len(scores.features) > 1 else scores.features
    features = features[:, begin:stop] if features.shape[1] > 1 else features
    features = features.expand(n_images, n_edges, -1)
    if scores.own_tables:
        gradient[lo:hi, begin:stop] += features[..., None, None] * derivative[:, :, None]
        return
    for group in range(gradient.shape[1]):
        chosen = scores.group[begin:stop] == group
        flat = features[:, chosen].flatten(0, 1).double()
        total = flat.T @ derivative[:, chosen].reshape(len(flat), n_labels**2).double()
        gradient[0, group] += total.reshape(-1, n_labels, n_labels)
