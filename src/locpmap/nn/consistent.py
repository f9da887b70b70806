"""The consistent objective: the cross-entropy of every site given neighbours that LocPMAP itself has decoded."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.graphs import Steps
from locpmap.graphs.grid import check_steps
from locpmap.inference import LocPMAP
from locpmap.inference import samples as drawn_samples
from locpmap.nn.operators import site_losses
from locpmap.nn.potentials import (
    NEAREST,
    VOID,
    Field,
    PairwiseForm,
    check_ignore_index,
    check_reduction,
    make_field,
    potentials_of,
    reduce,
)

REDUCTIONS = ("mean", "sum", "none")


def consistent_loss(
    logits: Tensor,
    pairwise: PairwiseForm,
    labels: Tensor,
    samples: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """``-Σ_i log mean_m p(y_i | y^m_¬i)`` with given samples; where these are the true labels, the pseudolikelihood.

    Args:
        logits: (N, K, H, W).
        pairwise: As for :class:`PseudolikelihoodLoss`.
        labels: The true labels, (N, H, W).
        samples: The neighbours' labels y^1..y^M, integers (M, N, H, W); -1 and ``ignore_index`` mark sites that are no
            neighbours, as void sites are none.
        ignore_index: Label of void sites.
        reduction: "mean", "sum" or "none", as for :class:`PseudolikelihoodLoss`.

    Costs O(M·N·H·W·K) time and memory.

    >>> import torch
    >>> labels = torch.tensor([[[0, 0]]])
    >>> samples = torch.stack([labels, 1 - labels])
    >>> consistent_loss(torch.zeros(1, 2, 1, 2), 1.0, labels, samples).exp()  # the mean of p and 1 - p is 1/2
    tensor(2.)
    """
    check_reduction(reduction, REDUCTIONS)
    field = make_field(logits, pairwise, labels, check_ignore_index(ignore_index))
    if not isinstance(samples, Tensor):
        raise InputTypeError(f"samples is a {type(samples).__name__}, expected a tensor")
    if samples.dim() != 4 or samples.shape[1:] != labels.shape or len(samples) == 0:
        raise InputError(f"samples has shape {tuple(samples.shape)}, expected (M, {', '.join(map(str, labels.shape))})")
    if samples.is_floating_point() or samples.dtype == torch.bool:
        raise InputTypeError(f"samples has dtype {samples.dtype}, expected integers such as torch.int64")
    if not torch.compiler.is_compiling():
        _check_samples(samples, logits.shape[1], ignore_index)
    return _reduced_loss(field, samples, reduction)


def _check_samples(samples: Tensor, n_labels: int, ignore_index: int) -> None:
    """Refuse what is neither a label nor marks a void site."""
    wrong = ((samples < VOID) | (samples >= n_labels)) & (samples != ignore_index)
    if bool(wrong.any()):
        expected = f"0 to {n_labels - 1}, {VOID} or ignore_index {ignore_index}"
        raise InputError(f"samples contains {int(samples[wrong][0])}, expected {expected}")


def _reduced_loss(field: Field, samples: Tensor, reduction: str) -> Tensor:
    """Return the loss given samples (M, N, H, W); what is not a label is nobody's neighbour, nor are void sites."""
    with torch.autocast(samples.device.type, enabled=False):
        flat = samples.flatten(2).permute(1, 2, 0)
        none = (flat < 0) | (flat >= field.unary.shape[2]) | (field.labels == VOID)[:, :, None]
        near = flat.to(torch.int16).masked_fill(none, VOID).contiguous()
        loss, _ = site_losses(field.unary, field.pairwise, field.labels, near, field.shape, field.form)
        return reduce(loss, field, reduction)


class ConsistentLoss(torch.nn.Module):  # type: ignore[misc]
    """``-Σ_i log mean_m p(y_i | y^m_¬i)`` with LocPMAP samples y^1..y^M under the current logits and pairwise terms.

    It is the likelihood of the probabilities that ``LocPMAP(probability="conditional")`` reports, so that learning sees
    the neighbours that decoding will see.  The samples are drawn anew in every call and carry no gradient; the gradient
    flows through the conditionals, as in :class:`PseudolikelihoodLoss`.  Precision as there.

    The samples are those of :func:`locpmap.samples`, under a seed made of ``seed`` and the number of calls in training
    mode, which is the buffer ``step`` in the ``state_dict``: a resumed training draws what the interrupted one would
    have drawn.  In evaluation mode ``step`` stands still, so that validation losses are compared under the same noise.
    Each of several processes that train together has noise of its own.

    Args:
        n_samples: M.  Costs O(M·N·H·W·K) memory and that times the sweeps in time.
        max_sweeps: Sweeps after which a climb stops.
        seed: Seed of the noise, 0 to 2^64 - 1.
        ignore_index: Label of void sites, which contribute nothing, also not as neighbours.
        reduction: "mean" over the labelled sites, "sum", or "none" for the loss of every site, (N, H, W).
        steps: Where a site's neighbours are, as for :class:`PseudolikelihoodLoss`.

    Called with ``logits``, ``pairwise`` and ``labels`` as :class:`PseudolikelihoodLoss` is.

    >>> import torch
    >>> loss = ConsistentLoss(n_samples=2)
    >>> loss(torch.zeros(1, 2, 3, 3), 0.0, torch.zeros(1, 3, 3, dtype=torch.int64)).exp()  # without coupling 1 / p = 2
    tensor(2.)
    """

    step: Tensor

    def __init__(
        self,
        n_samples: int = 4,
        max_sweeps: int = 12,
        seed: int = 0,
        ignore_index: int = -100,
        reduction: str = "mean",
        steps: Steps = NEAREST,
    ) -> None:
        super().__init__()
        self.steps = check_steps("steps", steps)
        self.n_samples = whole_number("n_samples", n_samples, 1)
        self.max_sweeps = whole_number("max_sweeps", max_sweeps, 1)
        self.seed = whole_number("seed", seed, 0, 2**64 - 1)
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = check_reduction(reduction, REDUCTIONS)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """The loss: a scalar, or (N, H, W) without reduction."""
        field = make_field(logits, pairwise, labels, self.ignore_index, self.steps)
        return _reduced_loss(field, self._draw(field), self.reduction)

    @torch.compiler.disable  # how long a climb takes depends on the data
    def _draw(self, field: Field) -> Tensor:
        group = torch.distributed
        rank = group.get_rank() if group.is_available() and group.is_initialized() else 0
        seed = int(np.random.SeedSequence((self.seed, int(self.step), rank)).generate_state(1, np.uint64)[0])
        if self.training:
            self.step += 1
        decoder = LocPMAP(self.n_samples, max_sweeps=self.max_sweeps)
        drawn = drawn_samples(potentials_of(field), decoder, seed=seed, chunk=self.n_samples)
        return torch.stack([torch.as_tensor(labels) for labels in drawn])
