"""A CRF head for a network: pairwise weights, the loss in training mode, and decoding in evaluation mode."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError, InputTypeError, one_of, whole_number
from locpmap.graphs import box_of, ends_of
from locpmap.graphs.grid import name_of
from locpmap.inference import ErrorFields, LocPMAP, infer
from locpmap.inference.api import configure
from locpmap.inference.decoder import Decoder
from locpmap.kernels.fields import MAX_SCALES
from locpmap.nn.field_loss import FieldLoss
from locpmap.nn.losses import CompositeLikelihoodLoss, ConsistentLoss, PseudolikelihoodLoss
from locpmap.nn.potentials import NEAREST, AnySteps, box_potentials, check_axes, connectivity_of, nearest, parse_steps
from locpmap.result import Result

OBJECTIVES = {
    "pseudolikelihood": PseudolikelihoodLoss,
    "composite": CompositeLikelihoodLoss,
    "consistent": ConsistentLoss,
}
FIRST_SIZE = 0.3  # of error fields: at 0 the gradient is 0


class CRFHead(torch.nn.Module):  # type: ignore[misc]
    """CRF on top of a network's logits, with learned or fixed pairwise terms.

    In training mode ``head(logits, labels)`` returns the loss. In evaluation mode ``head(logits)`` returns a
    :class:`locpmap.Result` with labels (N, H, W) and probabilities (N, H, W, K). With ``steps=6`` or 26 the logits are
    those of volumes, (N, K, D, H, W), and so are labels and results.

    The pairwise terms have one of three forms:

    - the same on all edges (default),
    - linear in features of the edges, ``Σ_f edge_features[e, f] · weights[step, f]`` (``features=F``),
    - predicted for every edge by a 1×1 convolution on a feature map at the edge's first end (``feature_channels=C``).

    Edges of different steps have separate weights. By default all weights start at 0, which means no coupling.

    With ``n_scales=J`` the head also learns the sizes of :class:`locpmap.ErrorFields`, and samples are whole label maps
    that differ in regions. This is a stochastic segmentation network with a CRF. :meth:`sizes` returns the sizes.

    Args:
        n_labels (int): Number of labels K.
        pairwise (str, default "potts"): "potts" for a weight that scores equal labels, or "table" for a score for every
            pair of labels.
        features (int or None, default None): Number F of features per edge, at least 1. ``edge_features`` are then
            required in every call. None for terms that are the same on all edges.
        feature_channels (int or None, default None): Number C of channels, at least 1, of the feature map from which
            terms are predicted. ``feature_map`` is then required in every call. It cannot be combined with
            ``features`` or ``learn=False``.
        steps (int or tuple, default ((0, 1), (1, 0))): Steps (rows down, columns right) to the neighbours of a site,
            with the constraints of :class:`locpmap.graphs.Grid`. Longer steps such as ``(0, 5)`` connect pixels beyond
            the receptive field of a network. 6 or 26 for the neighbours in a volume, with the steps of
            :class:`locpmap.graphs.Volume`.
        learn (bool, default True): Whether the weights are parameters. Otherwise they are a buffer and stay fixed.
        weights (float or array, default 0.0): Initial weights. They are broadcast to (D, F) for D steps, or to
            (D, F, K, K) for tables. A single number is a Potts weight, also for tables. Ignored with
            ``feature_channels``, whose convolution starts at 0.
        objective (str or Module, default "consistent"): "pseudolikelihood", "composite", "consistent", or a configured
            loss with the same ``steps``. "composite" needs the default steps or 6. "consistent" adapts the strength of
            the coupling to the decoder.
        method (str or Decoder, default "locpmap"): Name of a decoder, or a configured decoder, as in
            :func:`locpmap.infer`.
        options (dict or None, default None): Options of a decoder that is given by name; not allowed for a configured
            decoder.
        seed (int, default 0): Seed of decoding, from 0 to 2^64 - 1.
        n_scales (int, default 0): Number J of scales of error fields, with cells of 4, 8, 16, .. pixels. The coarsest
            cell must not exceed the larger side of the images. ``objective`` is then a :class:`FieldLoss`, or a
            loss that is wrapped in one. The decoder has to be LocPMAP.

    Raises:
        InputError: If an argument has an invalid value, or arguments exclude each other.

    Example:
        >>> from locpmap.nn import CRFHead
        >>> import torch
        >>> head = CRFHead(2, weights=1.0, learn=False, method="exact")
        >>> head.train(False)(torch.tensor([[[[2.0, -0.5, 2.0]], [[0.0, 0.0, 0.0]]]])).labels
        tensor([[[0, 0, 0]]])

        A head with error fields, whose samples are whole label maps:

        >>> head = CRFHead(3, n_scales=2, options={"n_samples": 10, "keep_samples": True})
        >>> head(torch.zeros(2, 3, 9, 9), torch.zeros(2, 9, 9, dtype=torch.int64)).backward()
        >>> head.train(False)(torch.zeros(2, 3, 9, 9)).samples.shape
        torch.Size([10, 2, 9, 9])

        A head for volumes, with a weight per direction:

        >>> head = CRFHead(2, steps=6)
        >>> head(torch.zeros(1, 2, 3, 4, 5), torch.zeros(1, 3, 4, 5, dtype=torch.int64)).backward()
        >>> head.weights.shape, head.train(False)(torch.zeros(1, 2, 3, 4, 5)).labels.shape
        (torch.Size([3, 1]), torch.Size([1, 3, 4, 5]))

    See Also:
        :class:`CRFNetwork`, :class:`ConsistentLoss`, :class:`PseudolikelihoodLoss`, :class:`CompositeLikelihoodLoss`,
        :class:`FieldLoss`.
    """

    weights: Tensor

    def __init__(
        self,
        n_labels: int,
        pairwise: str = "potts",
        *,
        features: int | None = None,
        feature_channels: int | None = None,
        steps: int | AnySteps = NEAREST,
        learn: bool = True,
        weights: Any = 0.0,
        objective: str | torch.nn.Module = "consistent",
        method: str | Decoder = "locpmap",
        options: dict[str, Any] | None = None,
        seed: int = 0,
        n_scales: int = 0,
    ) -> None:
        super().__init__()
        for name, count in (("n_labels", n_labels), ("features", features), ("feature_channels", feature_channels)):
            if (count is not None or name == "n_labels") and (not isinstance(count, int) or count < 1):
                raise InputError(f"{name} is {count!r}, expected a whole number of at least 1")
        one_of("pairwise", pairwise, ("potts", "table"))
        self.n_labels, self.features, self.feature_channels, self.seed = n_labels, features, feature_channels, seed
        self.steps = parse_steps(steps)
        self.term_shape = () if pairwise == "potts" else (n_labels, n_labels)
        if feature_channels is None:
            start = _start(weights, (len(self.steps), features or 1, *self.term_shape))
            if learn:
                self.weights = torch.nn.Parameter(start)
            else:
                self.register_buffer("weights", start)
        elif features is not None or not learn:
            raise InputError("feature_channels is given with features or learn=False, expected it alone")
        else:
            per_step = 1 if pairwise == "potts" else n_labels**2
            convolution = torch.nn.Conv2d if len(self.steps[0]) == 2 else torch.nn.Conv3d
            self.predict = convolution(feature_channels, len(self.steps) * per_step, 1)
            torch.nn.init.zeros_(self.predict.weight)
            torch.nn.init.zeros_(self.predict.bias)
        self.objective = _objective(objective, self.steps)
        self.decoder = configure(method, options or {})
        self.n_scales = whole_number("n_scales", n_scales, 0, MAX_SCALES)
        if n_scales:
            if not isinstance(self.objective, FieldLoss):
                one = ConsistentLoss(n_samples=1, steps=self.steps)  # for each field
                self.objective = FieldLoss(one if objective == "consistent" else self.objective)
            if not isinstance(self.decoder, LocPMAP) or self.decoder.fields is not None:
                raise InputError(f"n_scales is {n_scales}, expected method='locpmap' without fields of its own")
            # The first column is the bias of a linear map of pooled features.
            first = torch.zeros(n_scales * n_labels, 1 + (feature_channels or 0))
            first[:, 0] = math.log(math.expm1(FIRST_SIZE))
            self.spread = torch.nn.Parameter(first)
        elif isinstance(self.objective, FieldLoss):
            raise InputError("objective is a FieldLoss and n_scales is 0, expected at least one scale")

    def forward(
        self,
        logits: Tensor,
        labels: Tensor | None = None,
        feature_map: Tensor | None = None,
        edge_features: Sequence[Tensor] | None = None,
    ) -> Tensor | Result:
        """Return the loss in training mode, or the decoded result in evaluation mode.

        Args:
            logits (Tensor): Unary scores (N, K, H, W), or (N, K, D, H, W) for a head with the steps of a volume.
            labels (Tensor or None, default None): True labels (N, H, W) or (N, D, H, W); ignored in evaluation mode.
            feature_map (Tensor or None, default None): Features (N, C, ..) of the logits' size, for a head with
                ``feature_channels``.
            edge_features (sequence of Tensor or None, default None): One tensor per step for a head with ``features``.
                By default the steps are horizontal, (N, H, W-1, F), and vertical, (N, H-1, W, F). In a volume they are
                (N, D, H, W-1, F), (N, D, H-1, W, F) and (N, D-1, H, W, F). The first axis may be 1 for features that
                all images share.

        Returns:
            The loss, as the objective reduces it, or a :class:`locpmap.Result`.

        Raises:
            InputError: If a shape is wrong, labels are missing in training mode, or the decoder cannot decode the
                model.
        """
        terms = self.terms(logits, feature_map, edge_features)
        if not self.training:
            return self._decode(logits, terms, self.sizes(logits, feature_map))
        if labels is None:
            raise InputError("labels is None, expected labels in training mode (decoding needs evaluation mode)")
        if self.n_scales:
            return self.objective(logits, terms, labels, self.sizes(logits, feature_map))
        return self.objective(logits, terms, labels)

    def terms(
        self, logits: Tensor, feature_map: Tensor | None = None, edge_features: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        """Return the pairwise terms, one tensor per step, in a form that the losses accept as ``pairwise``.

        Args:
            logits (Tensor): Unary scores, as for :meth:`forward`.
            feature_map (Tensor or None, default None): As for :meth:`forward`.
            edge_features (sequence of Tensor or None, default None): As for :meth:`forward`.

        Returns:
            Tensors of shape () or (K, K), or of these shapes per edge, with the axes (1|N, [planes,] rows, columns) in
            front.
        """
        check_axes(logits, self.steps, self.n_labels)
        _check_given("feature_map", feature_map, "feature_channels", self.feature_channels)
        _check_given("edge_features", edge_features, "features", self.features)
        if feature_map is not None:
            return self._predicted(logits, feature_map)
        if edge_features is not None:
            return self._weighted(logits, edge_features)
        return tuple(self.weights[:, 0].unbind(0))

    def sizes(self, logits: Tensor, feature_map: Tensor | None = None) -> Tensor:
        """Return the standard deviations of error fields for :class:`locpmap.ErrorFields`.

        They are the softplus of a linear map of the mean of ``feature_map`` over the pixels. A head without
        ``feature_channels`` returns the same numbers for all images.

        Args:
            logits (Tensor): Unary scores, as for :meth:`forward`.
            feature_map (Tensor or None, default None): As for :meth:`forward`.

        Returns:
            A tensor (N, J, K); with ``n_scales=0``, (N, 0, K).
        """
        if not self.n_scales:
            return logits.new_zeros(len(logits), 0, self.n_labels)
        with torch.autocast(logits.device.type, enabled=False):
            map_ = self.spread.new_zeros(len(logits), 0, 1) if feature_map is None else feature_map
            pooled = map_.to(self.spread.dtype).flatten(2).mean(2)
            linear = F.linear(pooled, self.spread[:, 1:], self.spread[:, 0])
            return F.softplus(linear).unflatten(1, (self.n_scales, self.n_labels))

    def _predicted(self, logits: Tensor, feature_map: Tensor) -> tuple[Tensor, ...]:
        expected = (len(logits), self.feature_channels, *logits.shape[2:])
        if feature_map.shape != expected:
            raise InputError(f"feature_map has shape {tuple(feature_map.shape)}, expected {expected}")
        # Select the first ends of the edges: for example, pixels of the last column have no right neighbour.
        at_sites = self.predict(feature_map).movedim(1, -1).unflatten(-1, (len(self.steps), *self.term_shape))
        places = [ends_of(step, *logits.shape[2:])[0] for step in self.steps]
        terms = at_sites.unbind(logits.dim() - 1)
        return tuple(term[:, *place] for term, place in zip(terms, places, strict=True))

    def _weighted(self, logits: Tensor, edge_features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n_images, _, *size = logits.shape
        names = [name_of(step) for step in self.steps]
        if len(edge_features) != len(names):
            raise InputError(
                f"edge_features has {len(edge_features)} entries, expected {len(names)}: {' and '.join(names)}"
            )
        shapes = box_of(size, connectivity_of(self.steps)).direction_shapes
        for name, given, edges in zip(names, edge_features, shapes, strict=True):
            shape = (*edges, self.features)
            if given.shape[1:] != shape or given.shape[0] not in (1, n_images):
                raise InputError(
                    f"edge_features ({name}) has shape {tuple(given.shape)}, expected {(n_images, *shape)}"
                )
        with torch.autocast(logits.device.type, enabled=False):
            return tuple(
                torch.tensordot(given.to(self.weights.dtype), weights, dims=1)
                for given, weights in zip(edge_features, self.weights, strict=True)
            )

    @torch.compiler.disable
    @torch.no_grad()
    def _decode(self, logits: Tensor, terms: tuple[Tensor, ...], sizes: Tensor) -> Result:
        potentials = box_potentials(logits.movedim(1, -1), terms, self.steps)
        decoder = self.decoder
        if self.n_scales and isinstance(decoder, LocPMAP):
            decoder = replace(decoder, fields=ErrorFields(sizes))
        return infer(potentials, decoder, seed=self.seed)


def _check_given(name: str, value: object, option: str, number: int | None) -> None:
    if value is None and number is not None:
        raise InputError(f"{name} is None, expected it in a head with {option}={number}")
    if value is not None and number is None:
        raise InputError(f"{name} is given, expected None in a head without {option}")


def _start(weights: Any, shape: tuple[int, ...]) -> Tensor:
    try:
        start = torch.as_tensor(weights, dtype=torch.get_default_dtype()).detach()
        if start.dim() == 0 and len(shape) == 4:
            start = start * torch.eye(shape[-1])
        return start.expand(shape).clone()
    except (TypeError, ValueError, RuntimeError):
        came = tuple(weights.shape) if isinstance(weights, Tensor) else weights
        raise InputError(f"weights is {came!r}, expected numbers that broadcast to {shape}") from None


def _objective(objective: str | torch.nn.Module, steps: AnySteps) -> torch.nn.Module:
    near = nearest(len(steps[0]))
    if isinstance(objective, torch.nn.Module):
        if (getattr(objective, "steps", steps) or near) != steps:
            raise InputError(f"objective has steps={objective.steps or near}, expected {steps} like the head")
        return objective
    if not isinstance(objective, str):
        raise InputTypeError(f"objective is a {type(objective).__name__}, expected a name or a loss")
    if one_of("objective", objective, OBJECTIVES) == "composite" and steps != near:
        raise InputError(f"steps is {steps}, expected nearest neighbours {near} with objective='composite'")
    return OBJECTIVES[objective]() if objective == "composite" else OBJECTIVES[objective](steps=steps)
