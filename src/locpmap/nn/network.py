"""The network of the LocPMAP paper, and a network with its CRF head as one model that is trained and saved together."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike
from locpmap.formats.model_file import read_model, write_model
from locpmap.graphs import ends_of
from locpmap.inference import ErrorFields
from locpmap.nn.head import CRFHead
from locpmap.nn.potentials import AnySteps, connectivity_of
from locpmap.potentials import Potentials
from locpmap.result import Result

WIDTHS = (64, 126, 256, 512)  # as printed in the paper, including the 126
KIND = "network"
CHUNK = 250  # images per forward pass
MAX_LAYERS = 100  # maximum number of layers of a network that is loaded


class FCN(torch.nn.Module):  # type: ignore[misc]
    """Fully convolutional network: 3×3 convolutions with ReLU, and a 1×1 convolution to the labels.

    There is no pooling, so every pixel has its own logits. The receptive field is a square with a side of
    ``2 · len(widths) + 1`` pixels: 9 for the default widths, which are those of the paper.

    Args:
        n_labels (int, default 2): Number of labels K, at least 1.
        channels (int, default 1): Number of channels C of the images, at least 1.
        widths (sequence of int, default (64, 126, 256, 512)): Output channels of the 3×3 convolutions, at least one
            number.
        normalise (bool, default False): Whether to apply batch normalisation before every ReLU. It speeds up training;
            the paper has none.

    Example:
        >>> from locpmap.nn import FCN
        >>> import torch
        >>> FCN(n_labels=3)(torch.zeros(2, 1, 5, 6)).shape
        torch.Size([2, 3, 5, 6])

    See Also:
        :class:`CRFNetwork`.
    """

    def __init__(
        self, n_labels: int = 2, channels: int = 1, widths: Sequence[int] = WIDTHS, normalise: bool = False
    ) -> None:
        super().__init__()
        for name, values in (("n_labels", [n_labels]), ("channels", [channels]), ("widths", list(widths))):
            if not values or not all(type(n) is int and n > 0 for n in values):
                raise InputError(f"{name} is {values}, expected whole numbers of at least 1")
        self.n_labels, self.channels, self.widths, self.normalise = n_labels, channels, tuple(widths), normalise
        layers: list[torch.nn.Module] = []
        before = channels
        for width in self.widths:
            convolution = torch.nn.Conv2d(before, width, 3, padding=1, bias=not normalise)
            torch.nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, *([torch.nn.BatchNorm2d(width)] if normalise else []), torch.nn.ReLU()]
            before = width
        self.features = torch.nn.Sequential(*layers)
        self.classifier = torch.nn.Conv2d(before, n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K, H, W) of images (N, C, H, W); 1.5 million multiplications per pixel by default."""
        return self.classifier(self.features(images))


class CRFNetwork(torch.nn.Module):  # type: ignore[misc]
    """An :class:`FCN` with an optional :class:`CRFHead` on its logits.

    In training mode ``network(images, labels)`` returns the head's loss, or the cross-entropy without a head. In
    evaluation mode ``network(images)`` returns the head's decoded result, or the logits without a head.

    The head's options select its pairwise terms:

    - ``feature_channels=backbone.widths[-1]``: predicted from the network's last feature map,
    - ``features=1 + 2C``: linear in the intensities (1, x_i, x_j) at both ends of an edge,
    - neither: the same on all edges.

    Args:
        backbone (FCN): The network.
        head (CRFHead or None, default None): The CRF. It must have the backbone's number of labels and, if it has
            ``feature_channels`` or ``features``, the values above, with C the backbone's number of channels.

    Raises:
        InputError: If the head does not fit the backbone.

    Example:
        >>> import torch
        >>> from locpmap.nn import FCN, CRFHead, CRFNetwork
        >>> network = CRFNetwork(FCN(widths=(4, 8)), CRFHead(2, feature_channels=8))
        >>> loss = network(torch.zeros(3, 1, 5, 5), torch.zeros(3, 5, 5, dtype=torch.int64))
        >>> network.train(False).potentials(np.zeros((3, 5, 5), np.float32))
        <Potentials: 3 images, grid 5×5, 2 labels, Potts weights, float32>

    See Also:
        :func:`train`.
    """

    def __init__(self, backbone: FCN, head: CRFHead | None = None) -> None:
        super().__init__()
        if head is not None:
            sizes = {"feature_channels": backbone.widths[-1], "features": 1 + 2 * backbone.channels}
            for name, expected in sizes.items():
                if getattr(head, name) not in (None, expected):
                    raise InputError(f"head has {name}={getattr(head, name)}, expected {expected} for this network")
            if head.n_labels != backbone.n_labels:
                raise InputError(f"head has {head.n_labels} labels, expected {backbone.n_labels} like the network")
        self.backbone, self.head = backbone, head

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor | Result:
        """Return the loss in training mode, or the decoded result (logits without a head) in evaluation mode.

        Args:
            images (Tensor): Images (N, C, H, W).
            labels (Tensor or None, default None): True labels (N, H, W), needed in training mode.

        Returns:
            A scalar loss, a :class:`locpmap.Result`, or logits (N, K, H, W).
        """
        feature_map = self.backbone.features(images)
        logits = self.backbone.classifier(feature_map)
        if self.head is not None:
            return self.head(logits, labels, **self._pairwise_inputs(images, feature_map))
        if not self.training:
            return logits
        if labels is None:
            raise InputError("labels is None, expected labels in training mode (decoding needs evaluation mode)")
        return F.cross_entropy(logits.float(), labels)

    def potentials(self, images: npt.ArrayLike) -> Potentials:
        """Return the potentials of images, to decode with :func:`locpmap.infer`.

        They do not include the error fields of a head with ``n_scales``: see :meth:`fields`.

        Args:
            images (array): Images (N, H, W) or (N, C, H, W).

        Returns:
            The :class:`locpmap.Potentials` of N images as NumPy arrays.

        Raises:
            InputError: If the network has no head, or the images have a wrong shape.
        """
        if self.head is None:
            raise InputError("the network has no head, expected one for the pairwise terms of potentials")
        parts = [(logits, *terms) for logits, terms, _ in self._run(images)]
        logits, *terms = (
            torch.cat(column) if column[0].dim() > 2 else column[0] for column in zip(*parts, strict=True)
        )
        numbers, steps = tuple(term.numpy() for term in terms), connectivity_of(self.head.steps)
        return Potentials.grid(logits.movedim(1, -1).contiguous().numpy(), numbers, connectivity=steps)

    def fields(self, images: npt.ArrayLike) -> ErrorFields:
        """Return the error fields of images, for ``locpmap.LocPMAP(fields=...)``.

        Args:
            images (array): Images (N, H, W) or (N, C, H, W).

        Returns:
            The :class:`locpmap.ErrorFields` with sizes (N, J, K).

        Raises:
            InputError: If the network has no head with ``n_scales``, or the images have a wrong shape.
        """
        if self.head is None or not self.head.n_scales:
            raise InputError("the network has no head with n_scales, expected one that learned error fields")
        return ErrorFields(torch.cat([sizes for _, _, sizes in self._run(images)]))

    def logits(self, images: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return the network's logits for images, without the CRF.

        Args:
            images (array): Images (N, H, W) or (N, C, H, W).

        Returns:
            Logits (N, H, W, K) as a NumPy array; the label axis is last.
        """
        every = torch.cat([logits for logits, _, _ in self._run(images)])
        return every.movedim(1, -1).contiguous().numpy()

    def save(self, path: PathLike, *, half: bool = False) -> None:
        """Write weights and architecture to a safetensors file, atomically.

        Args:
            path (str or os.PathLike): File to write.
            half (bool, default False): Whether to store half precision, which halves the size of the file.

        Example:
            >>> import tempfile
            >>> from locpmap.nn import FCN, CRFHead, CRFNetwork
            >>> network = CRFNetwork(FCN(widths=(4,)), CRFHead(2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     network.save(f"{folder}/network.safetensors")
            ...     loaded = CRFNetwork.load(f"{folder}/network.safetensors")
            >>> bool((loaded.backbone.classifier.weight == network.backbone.classifier.weight).all())
            True
        """
        backbone, head = self.backbone, self.head
        header: dict[str, Any] = {
            "kind": KIND,
            "backbone": {
                "n_labels": backbone.n_labels,
                "channels": backbone.channels,
                "widths": list(backbone.widths),
                "normalise": backbone.normalise,
            },
            "head": None if head is None else _head_arguments(head),
        }
        dtype = np.float16 if half else np.float32
        arrays = {name: value.cpu().numpy().astype(dtype) for name, value in _state_of(self).items()}
        write_model(path, arrays, header)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Load a network that :meth:`save` wrote; objective and decoder of the head are the defaults.

        Args:
            path (str or os.PathLike): File to read. No code in it is executed.

        Returns:
            The network in evaluation mode.

        Raises:
            InputError: If the file is not a valid network file.
        """
        arrays, header = read_model(path)
        if header.get("kind") != KIND:
            raise InputError(f"{path} holds a {header.get('kind', 'CRF')}, expected a network")
        try:
            with torch.device("meta"):  # allocates no memory: the sizes in the header may be wrong
                expected = {name: tuple(value.shape) for name, value in _state_of(cls._from_header(header)).items()}
            if {name: array.shape for name, array in arrays.items()} != expected:
                raise InputError(f"its weights are {sorted(arrays)} of other names or shapes")
            network = cls._from_header(header)
            state = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
            network.load_state_dict(state, strict=False)  # batch counters are not saved
        except (KeyError, TypeError, RuntimeError, InputError) as error:
            raise InputError(f"{path} does not hold the network that it describes: {error}") from None
        return network.train(False)

    @classmethod
    def _from_header(cls, header: dict[str, Any]) -> Self:
        backbone, head = header["backbone"], header["head"]
        if len(backbone["widths"]) > MAX_LAYERS:
            raise InputError(f"it has {len(backbone['widths'])} layers, expected at most {MAX_LAYERS}")
        steps = None if head is None else tuple(tuple(step) for step in head["steps"])
        return cls(FCN(**backbone), None if head is None else CRFHead(**head | {"steps": steps}))

    def _pairwise_inputs(self, images: Tensor, feature_map: Tensor) -> dict[str, Any]:
        """Return the arguments, besides logits, from which the head computes its pairwise terms."""
        assert self.head is not None
        if self.head.feature_channels is not None:
            return {"feature_map": feature_map}
        if self.head.features is not None:
            return {"edge_features": intensities_of_ends(images, self.head.steps)}
        return {}

    @torch.no_grad()
    def _run(self, images: npt.ArrayLike) -> Iterator[tuple[Tensor, tuple[Tensor, ...], Tensor]]:
        """Yield logits (n, K, H, W), pairwise terms and sizes (n, J, K) of each chunk of images, on the CPU."""
        pixels = torch.from_numpy(np.asarray(images, np.float32))
        pixels = pixels[:, None] if pixels.dim() == 3 else pixels
        if pixels.dim() != 4 or pixels.shape[1] != self.backbone.channels or 0 in pixels.shape:
            came, channels = tuple(np.shape(images)), self.backbone.channels
            raise InputError(f"images has shape {came}, expected (N, H, W) or (N, {channels}, H, W)")
        device = self.backbone.classifier.weight.device
        training = self.training
        self.train(False)
        try:
            for chunk in pixels.split(CHUNK):
                batch = chunk.to(device)
                feature_map = self.backbone.features(batch)
                logits = self.backbone.classifier(feature_map)
                terms: tuple[Tensor, ...] = ()
                sizes = torch.zeros(0)
                if self.head is not None:
                    inputs = self._pairwise_inputs(batch, feature_map)
                    terms = self.head.terms(logits, **inputs)
                    sizes = self.head.sizes(logits, inputs.get("feature_map"))
                yield logits.cpu(), tuple(term.detach().cpu() for term in terms), sizes.detach().cpu()
        finally:
            self.train(training)


def _state_of(network: CRFNetwork) -> dict[str, Tensor]:
    """Return the tensors that are saved: all of the ``state_dict`` except integer counters."""
    return {name: value for name, value in network.state_dict().items() if value.is_floating_point()}


def intensities_of_ends(images: Tensor, steps: AnySteps) -> list[Tensor]:
    """Return edge features (N, h, w, 1 + 2C) for each step: 1, the channels at the first end, those at the second."""
    features = []
    for step in steps:
        first, second = (images[:, :, *place] for place in ends_of(step, *images.shape[2:]))
        features.append(torch.cat([torch.ones_like(first[:, :1]), first, second], dim=1).movedim(1, -1))
    return features


def _head_arguments(head: CRFHead) -> dict[str, Any]:
    """Return the arguments that build a head of the same shape, without objective and decoder."""
    return {
        "n_labels": head.n_labels,
        "pairwise": "table" if head.term_shape else "potts",
        "features": head.features,
        "feature_channels": head.feature_channels,
        "steps": [list(step) for step in head.steps],
        "n_scales": head.n_scales,
        "learn": head.feature_channels is not None or "weights" in dict(head.named_parameters()),
    }
