"""The networks for scenes: construction by name, files, and prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError, unknown
from locpmap.formats import read_model, write_model
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.scenes import CLASSES
from locpmap_paper.networks.deeplab import DeepLab
from locpmap_paper.networks.efficientnet import EfficientNetLite0
from locpmap_paper.networks.pyramid import PyramidNetwork
from locpmap_paper.networks.weights import load_weights, to_arrays

Network = PyramidNetwork | DeepLab
Logits = npt.NDArray[np.float32]

KINDS = ("pretrained", "deeplab")
FILE_KIND = "scene network"


def build_network(
    kind: str, options: Mapping[str, Any], *, published: bool = False, folder: PathLike | None = None
) -> Network:
    """Return a new network.

    Args:
        kind: "pretrained" (encoder and feature pyramid) or "deeplab" (19 convolutions).
        options: Options of :class:`PyramidNetwork` (and ``drop`` of its encoder) or of :class:`DeepLab`.
        published: Whether the encoder gets its ImageNet weights; else random ones.
        folder: Cache folder of the published weights; by default :func:`locpmap_paper.data.folder`.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if kind == "deeplab":
        return DeepLab(len(CLASSES), **options)
    others = {name: value for name, value in options.items() if name != "drop"}
    drop = options.get("drop", 0.0)
    encoder = EfficientNetLite0.published(drop=drop, folder=folder) if published else EfficientNetLite0(drop)
    return PyramidNetwork(len(CLASSES), encoder, **others)


def save_network(path: PathLike, network: Network, *, half: bool = False) -> None:
    """Write weights and options into one file atomically; `half` stores half precision."""
    kind = "deeplab" if isinstance(network, DeepLab) else "pretrained"
    header = {"kind": FILE_KIND, "network": kind, "options": network.options}
    write_model(path, to_arrays(network, half=half), header)


def load_network(path: PathLike) -> Network:
    """Load a network written by :func:`save_network`, in evaluation mode."""
    arrays, header = read_model(path)
    if header.get("kind") != FILE_KIND:
        raise InputError(f"{path} holds a {header.get('kind', 'CRF')}, expected a {FILE_KIND}")
    try:
        network = build_network(header["network"], header["options"])
        state = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
        load_weights(network, state)
    except (KeyError, TypeError, RuntimeError, InputError) as error:
        raise InputError(f"{path} does not contain the network that it describes: {error}") from None
    return network.train(False)


@torch.no_grad()
def predict_logits(
    network: Network, image: npt.NDArray[np.uint8], *, scales: Sequence[float] = (1.0,), mirrored: bool = True
) -> Logits:
    """Return logits (H, W, 8) of an image (H, W, 3), averaged over magnifications and over mirroring."""
    pixels = as_batch(image, network)
    views = torch.cat([pixels, pixels.flip(-1)]) if mirrored else pixels
    total = torch.zeros((), device=pixels.device)
    for scale in scales:
        size = [round(n * scale) for n in pixels.shape[2:]]
        seen = views if scale == 1 else F.interpolate(views, size=size, mode="bilinear", antialias=True)
        logits = network(seen).float()
        if mirrored:
            logits = (logits[:1] + logits[1:].flip(-1)) / 2
        total = total + F.interpolate(logits, size=pixels.shape[2:], mode="bilinear")
    mean: Logits = (total / len(scales))[0].movedim(0, -1).contiguous().cpu().numpy()
    return mean


def as_batch(image: npt.NDArray[np.uint8], network: torch.nn.Module) -> Tensor:
    """Return an image (H, W, 3) as a batch (1, 3, H, W) with the device and dtype of the network's weights."""
    parameter = next(network.parameters())
    own = np.ascontiguousarray(image)
    return torch.tensor(own, dtype=parameter.dtype, device=parameter.device).movedim(-1, 0)[None]
