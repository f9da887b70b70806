"""The loss of a CRF with error fields: the likelihood of labels at several pixels, averaged over sampled fields.

An error field is a random effect, so the labels of nearby pixels depend on each other.  The loss is a composite
likelihood of sets of four pixels, or eight voxels, at the distances 1, 2, 4 and so on.  The likelihood of a whole
image cannot be estimated from few samples: one of them dominates the mean, and the sizes of the fields are then learned
too small.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.inference.fields import ErrorFields, check_scales
from locpmap.kernels.fields import LINEAR
from locpmap.nn.losses import ConsistentLoss, PseudolikelihoodLoss, next_seed
from locpmap.nn.potentials import Field, PairwiseForm, make_field, reduce


class FieldLoss(torch.nn.Module):  # type: ignore[misc]
    """Loss through which the sizes of error fields are learned, together with unary and pairwise scores.

    Call it as ``loss(logits, pairwise, labels, sizes)``.  Let β run over sets of 2 × 2 pixels, or 2 × 2 × 2 voxels,
    at distance d, and let f^1..f^M be error fields that are added to the logits.  The loss is the mean over
    d = 1, 2, 4, .. up to the coarsest cell of ::

        -Σ_β log mean_m Π_(i in β) p(y_i | f^m)

    With sizes 0 it equals the objective.

    Args:
        objective (PseudolikelihoodLoss, ConsistentLoss or None, default None): Loss that defines p(y_i | f), with its
            ``ignore_index``, ``steps`` and ``reduction`` "mean" or "sum".  None for a :class:`ConsistentLoss` with one
            sample for each field.
        n_samples (int, default 16): Number M of sampled fields per image, at least 2.
        seed (int, default 0): Seed of the fields, from 0 to 2^64 - 1.

    Notes:
        Costs M times as much as the objective.  The bias of the logarithm of a mean of M samples is corrected to first
        order; what remains favours small sizes, mostly at fine scales, and decreases with M.

        Sizes and pairwise weights compete to explain that near labels are equal.  :class:`PseudolikelihoodLoss`
        conditions on the true labels of the neighbours, so learned weights explain nearly all of it.  Use it with fixed
        weights.

        Fields depend on ``seed``, the buffer ``step`` and the process as in :class:`ConsistentLoss`, and on the type
        of the device.

    Example:
        >>> import torch
        >>> from locpmap.nn import FieldLoss, PseudolikelihoodLoss
        >>> loss = FieldLoss(PseudolikelihoodLoss())
        >>> logits, labels = torch.zeros(1, 2, 8, 8), torch.zeros(1, 8, 8, dtype=torch.int64)
        >>> values = [float(loss(logits, 0.0, labels, torch.tensor([size]))) for size in (0.0, 3.0)]
        >>> round(values[0], 4)  # log 2
        0.6931
        >>> values[1] < values[0]  # with fields, equal labels of near pixels are more likely
        True

    See Also:
        :class:`CRFHead`, :class:`locpmap.ErrorFields`.
    """

    step: Tensor

    def __init__(self, objective: PseudolikelihoodLoss | None = None, n_samples: int = 16, seed: int = 0) -> None:
        super().__init__()
        self.objective = ConsistentLoss(n_samples=1) if objective is None else objective
        if not isinstance(self.objective, PseudolikelihoodLoss):
            raise InputTypeError(
                f"objective is a {type(objective).__name__}, expected a PseudolikelihoodLoss or a ConsistentLoss"
            )
        if self.objective.reduction == "none":
            raise InputError("objective has reduction='none', expected 'mean' or 'sum': error fields join pixels")
        self.n_samples, self.steps = whole_number("n_samples", n_samples, 2), self.objective.steps
        self.seed = whole_number("seed", seed, 0, 2**64 - 1)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, logits: Tensor, pairwise: PairwiseForm, labels: Tensor, sizes: Tensor) -> Tensor:
        """Draw error fields and return the loss, a scalar tensor.

        Args:
            logits (Tensor): Unary scores (N, K, H, W) or (N, K, D, H, W).
            pairwise (float, Tensor or sequence): As for :meth:`PseudolikelihoodLoss.forward`.
            labels (Tensor): True labels (N, H, W) or (N, D, H, W), integers.
            sizes (Tensor): Standard deviations as in :class:`locpmap.ErrorFields` with cells of 4, 8, .. pixels: (J,),
                (J, K), or (N, J, K).
        """
        field = make_field(logits, pairwise, labels, self.objective.ignore_index, self.steps)
        sizes = _checked_sizes(sizes, logits)
        with torch.autocast(logits.device.type, enabled=False):
            errors = draw_fields(sizes, field.shape, self.n_samples, self._generator(logits.device))
            losses = self.objective.of_sites(_with_errors(field, errors.to(field.unary.dtype), self.n_samples))
            losses = losses.reshape(-1, self.n_samples, *field.shape)
            distances = [2**level for level in range(sizes.shape[1] + 2)]  # the last one is the coarsest cell
            total = sum(_likelihood_loss(_of_sets(losses, distance)) for distance in distances)
            return reduce(total / len(distances), field, self.objective.reduction)

    @torch.compiler.disable  # generators cannot be compiled
    def _generator(self, device: torch.device) -> torch.Generator:
        return torch.Generator(device).manual_seed(next_seed(self))


@torch.compiler.disable  # for its generator
def draw_fields(sizes: Tensor, shape: tuple[int, ...], n_samples: int, generator: torch.Generator) -> Tensor:
    """Draw sums of error fields, (N · M, K, *shape), for standard deviations ``sizes`` (N, J, K), M samples per image.

    They have the distribution of :class:`locpmap.ErrorFields`, but with normal nodes.  The gradient with respect to the
    sizes needs memory for the nodes only.  ``generator`` is on the device of the sizes.
    """
    n_images, n_scales, n_labels = sizes.shape
    n, options = n_images * n_samples, {"device": sizes.device, "generator": generator}
    coarsest = ErrorFields.cell << max(0, n_scales - 1)
    phases = torch.randint(coarsest, (len(shape), n, 1, 1), **options)
    total = sizes.new_zeros(n, n_labels, *shape)
    for scale, of_scale in enumerate(sizes.unbind(1)):
        cell = ErrorFields.cell << scale
        sides = [(side - 1 + coarsest - 1) // cell + 2 for side in shape]
        noise = torch.randn(n, n_labels, *sides, dtype=sizes.dtype, **options)
        deviation = LINEAR ** (len(shape) / 2) * of_scale.repeat_interleave(n_samples, 0)
        field = deviation.reshape(n, n_labels, *[1] * len(shape)) * noise
        for axis, (phase, side, n_nodes) in enumerate(zip(phases, shape, sides, strict=True), 2):
            hats = _hats(phase, side, n_nodes, cell).to(sizes.dtype)
            field = torch.einsum("npq,nk...q->nk...p", hats, field.movedim(axis, -1)).movedim(-1, axis)
        total = total + field
    return total


def _hats(phases: Tensor, n_pixels: int, n_nodes: int, cell: int) -> Tensor:
    """Return the weights of linear interpolation, (n, n_pixels, n_nodes), for phases (n, 1, 1)."""
    pixels, nodes = (torch.arange(n, device=phases.device) for n in (n_pixels, n_nodes))
    return (1 - (pixels[:, None] + phases - cell * nodes).abs() / cell).clamp(min=0)


def _with_errors(field: Field, errors: Tensor, n_samples: int) -> Field:
    """Return a field with every image repeated, and with errors (N · M, K, ..) added to its unary scores."""

    def repeated(tensor: Tensor) -> Tensor:
        return tensor.repeat_interleave(n_samples, 0)

    return field._replace(
        unary=repeated(field.unary) + errors.flatten(2).mT,
        pairwise=repeated(field.pairwise) if len(field.pairwise) > 1 else field.pairwise,
        labels=repeated(field.labels),
        terms=tuple(repeated(term) if term.dim() > 2 and len(term) > 1 else term for term in field.terms),
    )


def _of_sets(losses: Tensor, distance: int) -> Tensor:
    """Return the sums of losses (N, M, ..) over sets of 2 sites along each axis at a distance, cut at the borders."""
    for axis in range(2, losses.dim()):
        missing = (*(0, 0) * (losses.dim() - 1 - axis), 0, -losses.shape[axis] % (2 * distance))
        losses = F.pad(losses, missing).unflatten(axis, (-1, 2, distance)).sum(axis + 1).flatten(axis, axis + 1)
    return losses


def _likelihood_loss(losses: Tensor) -> Tensor:
    """Return ``-Σ_β log mean_m exp(-losses[:, m, β])``, with a correction for the number M of samples.

    The mean m of M positive numbers with standard deviation s has ``E log m ≈ log E m - s² / (2 M m²)``.  The
    correction is at most 1/2, so that it cannot reward large errors.
    """
    n_samples = losses.shape[1]
    log_mean = (-losses).logsumexp(1) - math.log(n_samples)
    relative_variance = (n_samples * (-losses).softmax(1).square().sum(1) - 1) / (n_samples - 1)  # of the mean
    return -(log_mean + relative_variance / 2).sum()


def _checked_sizes(sizes: Tensor, logits: Tensor) -> Tensor:
    """Return sizes as (N, J, K), or raise if they do not fit the logits."""
    if not isinstance(sizes, Tensor) or not sizes.is_floating_point():
        came = f"has dtype {sizes.dtype}" if isinstance(sizes, Tensor) else f"is a {type(sizes).__name__}"
        raise InputTypeError(f"sizes {came}, expected a tensor of floating point")
    n_images, n_labels, *size = logits.shape
    given = sizes[:, None] if sizes.dim() == 1 else sizes
    given = given[None] if given.dim() == 2 else given
    if given.dim() != 3 or len(given) not in (1, n_images) or given.shape[2] not in (1, n_labels):
        raise InputError(
            f"sizes has shape {tuple(sizes.shape)}, expected (J,), (J, {n_labels}) or ({n_images}, J, {n_labels})"
        )
    if not torch.compiler.is_compiling() and not bool(((given >= 0) & torch.isfinite(given)).all()):
        raise InputError("sizes holds a negative number, NaN or infinity, expected finite ones of at least 0")
    check_scales(given.shape[1], ErrorFields.cell, max(size))
    return given.expand(n_images, -1, n_labels)
