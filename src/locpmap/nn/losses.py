"""Losses of a CRF on images or volumes: pseudolikelihood, composite likelihood and the consistent objective.

- Pseudolikelihood: the cross-entropy of every site given the true labels of its neighbours.
- Composite likelihood: ``-log p(y_β | y_¬β) = log Σ exp(score of β's labellings) - score of the true labelling`` of
  blocks β. The score contains the edges inside β, and the edges that leave β with the true label at their outer end.
- Consistent objective: the cross-entropy of every site given the labels that LocPMAP sampled at its neighbours.
"""

import numpy as np
import torch
from torch import Tensor

from locpmap.errors import InputError, InputTypeError, one_of, whole_number
from locpmap.inference import LocPMAP
from locpmap.inference import samples as drawn_samples
from locpmap.nn.operators import block_losses, site_losses
from locpmap.nn.potentials import (
    VOID,
    AnySteps,
    Field,
    PairwiseForm,
    check_ignore_index,
    make_field,
    parse_steps,
    potentials_of,
    reduce,
)

LINES = ("rows", "columns", "rows+columns")
REDUCTIONS = ("mean", "sum", "none")


class PseudolikelihoodLoss(torch.nn.Module):  # type: ignore[misc]
    """Negative log-pseudolikelihood of a CRF on images or volumes: ``-log p(y_i | y_¬i)`` per site i.

    Each site contributes the cross-entropy of its label given the true labels of its neighbours. Without coupling the
    loss equals ``torch.nn.functional.cross_entropy``. Call it as ``loss(logits, pairwise, labels)``; see
    :meth:`forward` for the arguments.

    Args:
        ignore_index (int, default -100): Label of void sites. They have no loss and do not influence their neighbours.
        reduction (str, default "mean"): "mean" over the labelled sites, "sum", or "none" for the loss of every site.
        steps (int or tuple, default None): Neighbours of a site. None for the nearest ones: 4 in images and 6 in
            volumes. 6 or 26 for volumes, or a tuple of steps (rows down, columns right) for images; see
            :class:`locpmap.graphs.Grid`.

    Notes:
        Costs O(N·H·W·K), and K times as much for tables per edge. The loss is computed in single precision, also under
        autocast, or in double precision if an argument is. Its gradient with respect to the logits of a site is
        ``p(label | neighbours) - 1{label is true}``, up to the reduction. NaN in the logits makes the loss NaN, as in
        ``cross_entropy``; a check would have to wait for the device. There are no second derivatives.

    Example:
        >>> import torch
        >>> from locpmap.nn import PseudolikelihoodLoss
        >>> logits = torch.zeros(1, 2, 1, 2)
        >>> loss = PseudolikelihoodLoss(reduction="none")
        >>> loss(logits, 1.0, torch.tensor([[[0, 0]]])).exp()  # 1 / p = 1 + e^-1 with a neighbour that agrees
        tensor([[[1.3679, 1.3679]]])

    See Also:
        :class:`CompositeLikelihoodLoss`, :class:`ConsistentLoss`, :class:`CRFHead`.
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", steps: int | AnySteps | None = None) -> None:
        super().__init__()
        self.steps = None if steps is None else parse_steps(steps)
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = one_of("reduction", reduction, REDUCTIONS)

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            logits (Tensor): Unary scores (N, K, H, W), or (N, K, D, H, W) for volumes. A score of -inf forbids a label.
            pairwise (float, Tensor or sequence): Finite pairwise scores: a Potts weight, which scores equal labels; a
                table (K, K), whose first axis is the label of the left or upper site; or a sequence with one entry per
                step, by default horizontal and vertical. An entry is a weight, a table, weights per edge, or tables
                per edge. For horizontal edges, these have the shapes (), (K, K), (N, H, W-1) and (N, H, W-1, K, K).
                In a volume, the three entries are for neighbours in a row, in a column and in adjacent planes.
            labels (Tensor): True labels (N, H, W) or (N, D, H, W), integers.

        Returns:
            A scalar tensor, or one in the shape of the labels for ``reduction="none"``.
        """
        field = make_field(logits, pairwise, labels, self.ignore_index, self.steps)
        return reduce(self.of_sites(field), field, self.reduction)

    def of_sites(self, field: Field) -> Tensor:
        """Return the loss of every site, (N, S)."""
        return _losses_given(field.labels[:, :, None], field)


class CompositeLikelihoodLoss(torch.nn.Module):  # type: ignore[misc]
    """Negative log composite likelihood ``-Σ_β log p(y_β | y_¬β)`` over blocks β.

    Sites have 4 neighbours, or 6 in volumes. Call it as ``loss(logits, pairwise, labels)``; see
    :meth:`PseudolikelihoodLoss.forward` for the arguments.

    Args:
        blocks (str or tuple, default "rows+columns"): "rows", "columns", "rows+columns" (the sum of both), or a tile
            ``(h, w)``, in volumes ``(d, h, w)``, with up to 4,096 joint labellings. Tiles start at the top left corner
            and are cut at the lower and right borders.
        ignore_index (int, default -100): Label of void sites. They have no loss, do not influence their neighbours,
            and split a chain.
        reduction (str, default "mean"): "mean" divides the sum over all blocks by the number of labelled sites; "sum"
            does not.

    Notes:
        Rows and columns are chains, summed over by the forward recursion: O(N·H·W·K²) time and memory. Tiles are
        enumerated: O(N·H·W·K^(h·w)). Precision and NaN logits are handled as by :class:`PseudolikelihoodLoss`.

    Example:
        >>> import torch
        >>> from locpmap.nn import CompositeLikelihoodLoss
        >>> loss = CompositeLikelihoodLoss("rows", reduction="sum")
        >>> loss(torch.zeros(1, 2, 1, 2), 1.0, torch.tensor([[[0, 0]]])).exp()  # (2e + 2) / e
        tensor(2.7358)

    See Also:
        :class:`PseudolikelihoodLoss`, :class:`ConsistentLoss`.
    """

    def __init__(
        self, blocks: str | tuple[int, ...] = "rows+columns", ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if isinstance(blocks, str):
            one_of("blocks", blocks, LINES)
        elif (
            not isinstance(blocks, tuple)
            or len(blocks) not in (2, 3)
            or not all(type(n) is int and n > 0 for n in blocks)
        ):
            raise InputError(f"blocks is {blocks!r}, expected a name or a tile such as (h, w) of at least one site")
        self.blocks, self.steps = blocks, None
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = one_of("reduction", reduction, ("mean", "sum"))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor) -> Tensor:
        """Return the loss, a scalar tensor; see :meth:`PseudolikelihoodLoss.forward` for the arguments."""
        field = make_field(logits, pairwise, labels, self.ignore_index)
        name = self.blocks if isinstance(self.blocks, str) else ",".join(map(str, self.blocks))
        with torch.autocast(logits.device.type, enabled=False):
            how = (field.unary, field.pairwise, field.labels, field.numbers, field.form, name)
            return reduce(block_losses(*how)[0], field, self.reduction)


def consistent_loss(
    logits: Tensor,
    pairwise: PairwiseForm,
    labels: Tensor,
    samples: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Compute the consistent loss ``-Σ_i log mean_m p(y_i | y^m_¬i)`` with given samples y^1..y^M.

    If the samples are the true labels, it equals :class:`PseudolikelihoodLoss`. Each site has its 4
    nearest neighbours, or 6 in volumes.

    Args:
        logits (Tensor): Unary scores (N, K, H, W) or (N, K, D, H, W).
        pairwise (float, Tensor or sequence): Pairwise scores, as for :meth:`PseudolikelihoodLoss.forward`.
        labels (Tensor): True labels (N, H, W) or (N, D, H, W), integers.
        samples (Tensor): Sampled labels in the shape of the labels, with an axis M in front, integers. Void sites, and
            sites whose sample is -1 or ``ignore_index``, do not influence their neighbours.
        ignore_index (int, default -100): Label of void sites.
        reduction (str, default "mean"): "mean" over the labelled sites, "sum", or "none" for the loss of every site.

    Returns:
        A scalar tensor, or one in the shape of the labels for ``reduction="none"``.

    Notes:
        Costs O(M·N·H·W·K) time and memory.

    Example:
        >>> from locpmap.nn import consistent_loss
        >>> import torch
        >>> labels = torch.tensor([[[0, 0]]])
        >>> samples = torch.stack([labels, 1 - labels])
        >>> consistent_loss(torch.zeros(1, 2, 1, 2), 1.0, labels, samples).exp()  # the mean of p and 1 - p is 1/2
        tensor(2.)

    See Also:
        :class:`ConsistentLoss`, which draws the samples by LocPMAP.
    """
    one_of("reduction", reduction, REDUCTIONS)
    field = make_field(logits, pairwise, labels, check_ignore_index(ignore_index))
    if not isinstance(samples, Tensor):
        raise InputTypeError(f"samples is a {type(samples).__name__}, expected a tensor")
    if samples.shape[1:] != labels.shape or len(samples) == 0:
        raise InputError(f"samples has shape {tuple(samples.shape)}, expected (M, {', '.join(map(str, labels.shape))})")
    if samples.is_floating_point() or samples.dtype == torch.bool:
        raise InputTypeError(f"samples has dtype {samples.dtype}, expected integers such as torch.int64")
    if not torch.compiler.is_compiling():
        _check_samples(samples, logits.shape[1], ignore_index)
    return reduce(_losses_given(_neighbours(field, samples), field), field, reduction)


def _check_samples(samples: Tensor, n_labels: int, ignore_index: int) -> None:
    """Raise InputError for samples that are neither labels nor mark void sites."""
    wrong = ((samples < VOID) | (samples >= n_labels)) & (samples != ignore_index)
    if bool(wrong.any()):
        expected = f"0 to {n_labels - 1}, {VOID} or ignore_index {ignore_index}"
        raise InputError(f"samples contains {int(samples[wrong][0])}, expected {expected}")


def _neighbours(field: Field, samples: Tensor) -> Tensor:
    """Return samples (M, N, ..) as (N, S, M); void sites and numbers that are not labels have no influence."""
    flat = samples.flatten(2).permute(1, 2, 0)
    none = (flat < 0) | (flat >= field.unary.shape[2]) | (field.labels == VOID)[:, :, None]
    return flat.to(torch.int16).masked_fill(none, VOID).contiguous()


def _losses_given(neighbours: Tensor, field: Field) -> Tensor:
    """Return ``-log mean_m p(y_i | y^m)`` of every site, (N, S), given labels of the neighbours, (N, S, M)."""
    with torch.autocast(field.unary.device.type, enabled=False):
        return site_losses(field.unary, field.pairwise, field.labels, neighbours, field.numbers, field.form)[0]


def next_seed(loss: torch.nn.Module) -> int:
    """Return the seed of a call, from the loss's ``seed``, its number of calls ``step`` and the rank of the process.

    ``step`` increases in training mode only.
    """
    group = torch.distributed
    rank = group.get_rank() if group.is_available() and group.is_initialized() else 0
    seed = int(np.random.SeedSequence((loss.seed, int(loss.step), rank)).generate_state(1, np.uint64)[0])
    if loss.training:
        loss.step += 1
    return seed


class ConsistentLoss(PseudolikelihoodLoss):
    """Consistent loss ``-Σ_i log mean_m p(y_i | y^m_¬i)`` with samples y^1..y^M that LocPMAP draws.

    This is the negative log-likelihood of the probabilities that ``LocPMAP(probability="conditional")`` reports: each
    site is conditioned on sampled neighbours in training, as in decoding. The samples are drawn anew in every call
    under the current scores and carry no gradient. The gradient flows through the conditional probabilities, as in
    :class:`PseudolikelihoodLoss`.

    Call it as ``loss(logits, pairwise, labels)``; see :meth:`PseudolikelihoodLoss.forward` for the arguments.

    Args:
        n_samples (int, default 4): Number of samples M, at least 1.
        max_sweeps (int, default 12): Maximum number of sweeps of a climb, at least 1.
        seed (int, default 0): Seed of the noise, from 0 to 2^64 - 1.
        ignore_index (int, default -100): Label of void sites. They have no loss and do not influence their neighbours.
        reduction (str, default "mean"): "mean" over the labelled sites, "sum", or "none" for the loss of every site.
        steps (int or tuple, default None): Neighbours of a site, as for :class:`PseudolikelihoodLoss`.

    Notes:
        Costs O(M·N·H·W·K) memory, and time proportional to that and to the number of sweeps. The precision is that of
        :class:`PseudolikelihoodLoss`.

        The noise depends on ``seed``, on the rank of the process, and on the number of calls in training mode. That
        number is the buffer ``step`` of the ``state_dict``, so a resumed training draws the same samples as an
        uninterrupted one. In evaluation mode ``step`` does not change: validation losses are compared under the same
        noise.

    Example:
        >>> from locpmap.nn import ConsistentLoss
        >>> import torch
        >>> loss = ConsistentLoss(n_samples=2)
        >>> labels = torch.zeros(1, 3, 3, dtype=torch.int64)
        >>> loss(torch.zeros(1, 2, 3, 3), 0.0, labels).exp()  # without coupling p = 1/2
        tensor(2.)

    See Also:
        :func:`consistent_loss`, :func:`locpmap.samples`, :class:`locpmap.LocPMAP`.
    """

    step: Tensor

    def __init__(
        self,
        n_samples: int = 4,
        max_sweeps: int = 12,
        seed: int = 0,
        ignore_index: int = -100,
        reduction: str = "mean",
        steps: int | AnySteps | None = None,
    ) -> None:
        super().__init__(ignore_index, reduction, steps)
        self.n_samples = whole_number("n_samples", n_samples, 1)
        self.max_sweeps = whole_number("max_sweeps", max_sweeps, 1)
        self.seed = whole_number("seed", seed, 0, 2**64 - 1)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def of_sites(self, field: Field) -> Tensor:
        """Draw samples and return the loss of every site, (N, S)."""
        return _losses_given(_neighbours(field, self._draw(field)), field)

    @torch.compiler.disable  # the number of sweeps depends on the data
    def _draw(self, field: Field) -> Tensor:
        seed = next_seed(self)
        decoder = LocPMAP(self.n_samples, max_sweeps=self.max_sweeps)
        drawn = drawn_samples(potentials_of(field), decoder, seed=seed, chunk=self.n_samples)
        return torch.stack([torch.as_tensor(labels) for labels in drawn])
