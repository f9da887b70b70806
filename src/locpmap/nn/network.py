"""A network and the CRF on top of it as one model: trained together, decoded together, kept in one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike
from locpmap.formats.model_file import read_model, write_model
from locpmap.graphs import Steps
from locpmap.graphs.grid import ends_of
from locpmap.nn.fcn import FCN
from locpmap.nn.head import CRFHead
from locpmap.potentials import Potentials
from locpmap.result import Result

KIND = "network"
CHUNK = 250  # images that go through the network at once
MAX_LAYERS = 100  # of a network in a file


class CRFNetwork(torch.nn.Module):  # type: ignore[misc]
    """An :class:`FCN`, and a :class:`CRFHead` on its logits or none.

    The head's pairwise terms are predicted from the network's last features (``feature_channels``), or linear in the
    intensities at both ends of an edge, (1, x_i, x_j) (``features=1 + 2C``), or the same on all edges.

    In training mode ``network(images, labels)`` is the loss: the head's, or the cross-entropy where there is none.  In
    evaluation mode ``network(images)`` is the head's decoded result, or the logits where there is none.

    >>> import numpy as np, torch
    >>> from locpmap.nn import FCN, CRFHead, CRFNetwork
    >>> network = CRFNetwork(FCN(widths=(4, 8)), CRFHead(2, feature_channels=8))
    >>> loss = network(torch.zeros(3, 1, 5, 5), torch.zeros(3, 5, 5, dtype=torch.int64))
    >>> network.train(False).potentials(np.zeros((3, 5, 5), np.float32))
    <Potentials: 3 images, grid 5×5, 2 labels, Potts weights, float32>
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
        """The loss of images (N, C, H, W) with labels (N, H, W), or what the images are decoded to."""
        feature_map = self.backbone.features(images)
        logits = self.backbone.classifier(feature_map)
        if self.head is not None:
            output: Tensor | Result = self.head(logits, labels, **self._pairwise_inputs(images, feature_map))
            return output
        if not self.training:
            return logits
        if labels is None:
            raise InputError("labels is None, expected labels in training mode (decoding needs evaluation mode)")
        return F.cross_entropy(logits.float(), labels)

    def potentials(self, images: npt.ArrayLike) -> Potentials:
        """The CRF of images (N, H, W) or (N, C, H, W)."""
        if self.head is None:
            raise InputError("the network has no head, expected one to make a CRF of its logits")
        parts = [(logits, *terms) for logits, terms in self._run(images)]
        logits, *terms = (
            torch.cat(column) if column[0].dim() > 2 else column[0] for column in zip(*parts, strict=True)
        )
        numbers = tuple(term.numpy() for term in terms)
        return Potentials.grid(logits.movedim(1, -1).contiguous().numpy(), numbers, connectivity=self.head.steps)

    def logits(self, images: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The network's own scores, (N, H, W, K)."""
        every = torch.cat([logits for logits, _ in self._run(images)])
        scores: npt.NDArray[np.float32] = every.movedim(1, -1).contiguous().numpy()
        return scores

    def save(self, path: PathLike, *, half: bool = False) -> None:
        """Write weights and architecture into one file, completely or not at all; ``half``: at half the size."""
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
    def load(cls, path: PathLike) -> CRFNetwork:
        """What :meth:`save` wrote, in evaluation mode."""
        arrays, header = read_model(path)
        if header.get("kind") != KIND:
            raise InputError(f"{path} holds a {header.get('kind', 'CRF')}, expected a network")
        try:
            with torch.device("meta"):  # without memory: the file may lie about sizes
                expected = {name: tuple(value.shape) for name, value in _state_of(cls._from_header(header)).items()}
            if {name: array.shape for name, array in arrays.items()} != expected:
                raise InputError(f"its weights are {sorted(arrays)} of other names or shapes")
            network = cls._from_header(header)
            state = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
            network.load_state_dict(state, strict=False)  # counters of batches are not kept
        except (KeyError, TypeError, RuntimeError, InputError) as error:
            raise InputError(f"{path} does not hold the network that it describes: {error}") from None
        return network.train(False)

    @classmethod
    def _from_header(cls, header: dict[str, Any]) -> CRFNetwork:
        backbone, head = header["backbone"], header["head"]
        if len(backbone["widths"]) > MAX_LAYERS:
            raise InputError(f"it has {len(backbone['widths'])} layers, expected at most {MAX_LAYERS}")
        steps = None if head is None else tuple(tuple(step) for step in head["steps"])
        return cls(FCN(**backbone), None if head is None else CRFHead(**head | {"steps": steps}))

    def _pairwise_inputs(self, images: Tensor, feature_map: Tensor) -> dict[str, Any]:
        """What the head makes its pairwise terms of, besides logits."""
        assert self.head is not None
        if self.head.feature_channels is not None:
            return {"feature_map": feature_map}
        if self.head.features is not None:
            return {"edge_features": intensities_of_ends(images, self.head.steps)}
        return {}

    @torch.no_grad()
    def _run(self, images: npt.ArrayLike) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """Logits (n, K, H, W) and pairwise terms of one chunk after the other, on the CPU, in evaluation mode."""
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
                if self.head is not None:
                    terms = self.head.terms(logits, **self._pairwise_inputs(batch, feature_map))
                yield logits.cpu(), tuple(term.detach().cpu() for term in terms)
        finally:
            self.train(training)


def _state_of(network: CRFNetwork) -> dict[str, Tensor]:
    """Return the tensors that a file keeps: all but counters of batches."""
    return {name: value for name, value in network.state_dict().items() if value.is_floating_point()}


def intensities_of_ends(images: Tensor, steps: Steps) -> list[Tensor]:
    """Features (N, h, w, 1 + 2C) of the edges along each step: 1, the first end's channels, the second end's."""
    features = []
    for step in steps:
        first, second = ((images[:, :, rows, columns]) for rows, columns in ends_of(step, *images.shape[2:]))
        features.append(torch.cat([torch.ones_like(first[:, :1]), first, second], dim=1).movedim(1, -1))
    return features


def _head_arguments(head: CRFHead) -> dict[str, Any]:
    """The arguments that build a head of the same shape; objective and decoder are the user's next choice."""
    return {
        "n_labels": head.n_labels,
        "pairwise": "table" if head.term_shape else "potts",
        "features": head.features,
        "feature_channels": head.feature_channels,
        "steps": [list(step) for step in head.steps],
        "learn": head.feature_channels is not None or "weights" in dict(head.named_parameters()),
    }
