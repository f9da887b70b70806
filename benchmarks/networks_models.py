"""Segmentation networks of the benchmarks: four architectures, a stochastic head, files, prediction and draws."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError
from locpmap.formats import read_model, write_model
from locpmap.nn import FCN
from locpmap_paper.networks.efficientnet import CHANNELS, MEAN, SCALE, STRIDES, EfficientNetLite0
from locpmap_paper.networks.pyramid import PyramidNetwork
from locpmap_paper.networks.weights import load_weights, to_arrays

FILE_KIND = "benchmark network"
RANK = 10  # of the covariance factor of a stochastic segmentation network
FIRST_LOG_DEVIATION = -2.0
MOST_LOG_DEVIATION = 5.0
WIDTHS = (16, 32, 64)  # channels of the U-Net of small images at strides 1, 2 and 4
PHOTOGRAPHS = {"channels": 3, "widths": (16, 32, 64, 128, 128)}  # the U-Net of photographs, strides 1 to 16
CELL = STRIDES[-2]  # pixels per score of the linear head


class UNet(torch.nn.Module):  # type: ignore[misc]
    """A U-Net without pretrained weights.

    Args:
        n_labels (int): Number of labels, K.
        channels (int, default 1): Channels of the images. Three channels are pixels from 0 to 255.
        widths (sequence of int): Channels at strides 1, 2, 4 and so on; the default has about 120,000 weights.

    Example:
        >>> UNet(2).train(False)(torch.zeros(1, 1, 28, 30)).shape
        torch.Size([1, 2, 28, 30])
    """

    def __init__(self, n_labels: int, channels: int = 1, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        self.n_labels, self.width, self.channels = n_labels, widths[0], channels
        self.options = {"channels": channels, "widths": list(widths)}
        self.down = torch.nn.ModuleList(_pair(a, b) for a, b in zip((channels, *widths), widths, strict=False))
        self.up = torch.nn.ModuleList(_pair(a + b, a) for a, b in pairwise(widths))
        self.classifier = torch.nn.Conv2d(self.width, n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K, H, W) of images (N, 1, H, W)."""
        return self.to_pixels(self.classifier(self.features(images)), images)

    def features(self, images: Tensor) -> Tensor:
        """Return the last features (N, width, H, W); height and width are padded to multiples of the last stride."""
        stride = 2 ** (len(self.down) - 1)
        images = (images - MEAN) / SCALE if self.channels == 3 else images
        level = F.pad(images, (0, -images.shape[3] % stride, 0, -images.shape[2] % stride))
        levels = []
        for number, layers in enumerate(self.down):
            level = layers(F.max_pool2d(level, 2) if number else level)
            levels.append(level)
        for below, layers in list(zip(levels, self.up, strict=False))[::-1]:
            level = layers(torch.cat([below, F.interpolate(level, scale_factor=2.0, mode="bilinear")], 1))
        return level

    def to_pixels(self, coarse: Tensor, images: Tensor) -> Tensor:
        """Crop a map of the padded images to the size of the images."""
        return coarse[:, :, : images.shape[2], : images.shape[3]]


def _pair(before: int, after: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for channels in (before, after):
        convolution = torch.nn.Conv2d(channels, after, 3, padding=1, bias=False)
        layers += [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


class LinearHead(torch.nn.Module):  # type: ignore[misc]
    """A linear map of the features of a frozen pretrained encoder, with one score per 16 × 16 pixels.

    Args:
        n_labels (int): Number of labels, K.
        encoder (EfficientNetLite0, optional): Encoder; by default a new one with random weights.

    Example:
        >>> LinearHead(8).train(False).coarse(torch.zeros(1, 3, 50, 64)).shape
        torch.Size([1, 8, 4, 4])
    """

    def __init__(self, n_labels: int, encoder: EfficientNetLite0 | None = None) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.encoder = (encoder or EfficientNetLite0()).requires_grad_(False)
        self.normalise = torch.nn.BatchNorm2d(sum(CHANNELS[-2:]))  # features differ in size by orders of magnitude
        self.classifier = torch.nn.Conv2d(sum(CHANNELS[-2:]), n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, enlarged to the size of RGB images (N, 3, H, W) from 0 to 255."""
        return F.interpolate(self.coarse(images), size=images.shape[2:], mode="bilinear")

    def coarse(self, images: Tensor) -> Tensor:
        """Return the scores (N, K, h, w) of images that are first resized to whole cells of 16 × 16 pixels."""
        self.encoder.train(False)  # also in training: its statistics are frozen, too
        height, width = (-(-n // CELL) for n in images.shape[2:])
        images = F.interpolate(images, size=(CELL * height, CELL * width), mode="bilinear")
        images = F.pad(images, (0, CELL * (width % 2), 0, CELL * (height % 2)), mode="replicate")
        *_, fine, last = self.encoder(images)
        features = torch.cat([fine, F.interpolate(last, size=fine.shape[2:], mode="bilinear")], 1)
        scores: Tensor = self.classifier(self.normalise(features))
        return scores[:, :, :height, :width]


class SmallFCN(FCN):
    """Four 3×3 convolutions without pooling, for small images with one channel: it sees 9 × 9 pixels."""

    def __init__(self, n_labels: int) -> None:
        super().__init__(n_labels, widths=(64, 64, 64, 64), normalise=True)


Trunk = PyramidNetwork | UNet
Network = Trunk | LinearHead | SmallFCN
KINDS: dict[str, type[torch.nn.Module]] = {
    "pyramid": PyramidNetwork,
    "unet": UNet,
    "linear": LinearHead,
    "fcn": SmallFCN,
}


class StochasticNetwork(torch.nn.Module):  # type: ignore[misc]
    """A stochastic segmentation network (Monteiro et al., 2020): a normal distribution over all logits of an image.

    The covariance is F Fᵀ + diag(d²), with a factor F of rank 10 and standard deviations d.  The mean, d and F are
    three linear maps of the trunk's features, upsampled to pixels; the mean's is the classifier of the trunk.

    Args:
        trunk (PyramidNetwork or UNet): Network that computes features and the mean.
        rank (int, default 10): Rank of F.
    """

    def __init__(self, trunk: Trunk, rank: int = RANK) -> None:
        super().__init__()
        self.trunk, self.n_labels, self.rank = trunk, trunk.n_labels, rank
        self.log_deviation = torch.nn.Conv2d(trunk.width, trunk.n_labels, 1)
        self.factor = torch.nn.Conv2d(trunk.width, trunk.n_labels * rank, 1)
        torch.nn.init.zeros_(self.log_deviation.weight)
        torch.nn.init.constant_(self.log_deviation.bias, FIRST_LOG_DEVIATION)

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean logits (N, K, H, W)."""
        mean: Tensor = self.trunk(images)
        return mean

    def distribution(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean (N, K, H, W), the deviations (N, K, H, W) and the factor (N, rank, K, H, W)."""
        features = self.trunk.features(images)
        mean, log_deviation, factor = (
            self.trunk.to_pixels(head(features), images).float().contiguous()
            for head in (self.trunk.classifier, self.log_deviation, self.factor)
        )
        deviation = log_deviation.clamp(max=MOST_LOG_DEVIATION).exp()
        return mean, deviation, factor.unflatten(1, (self.rank, self.n_labels))


def draw_logits(
    distribution: tuple[Tensor, Tensor, Tensor], n: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return n samples (N, n, K, H, W) of the logits from a mean, deviations and a factor."""
    mean, deviation, factor = distribution
    options: dict[str, Any] = {"device": mean.device, "generator": generator}
    common = torch.randn(len(mean), n, factor.shape[1], **options)
    own = torch.randn(len(mean), n, *mean.shape[1:], **options)
    with torch.autocast(mean.device.type, enabled=False):
        shared = torch.bmm(common, factor.flatten(2)).unflatten(2, mean.shape[1:])
    return shared + torch.addcmul(mean[:, None], deviation[:, None], own)


def build(
    kind: str,
    n_labels: int,
    *,
    stochastic: bool = False,
    encoder: EfficientNetLite0 | None = None,
    options: dict[str, Any] | None = None,
) -> Network | StochasticNetwork:
    """Return a new network of one of the `KINDS`; an encoder with published weights may be given."""
    trunk: Network
    if kind == "pyramid":
        trunk = PyramidNetwork(n_labels, encoder, context=True)
    elif kind == "linear":
        trunk = LinearHead(n_labels, encoder)
    else:
        trunk = UNet(n_labels, **(options or {})) if kind == "unet" else SmallFCN(n_labels)
    if not stochastic:
        return trunk
    assert isinstance(trunk, Trunk)
    return StochasticNetwork(trunk)


def save(path: Path, network: Network | StochasticNetwork, details: dict[str, Any]) -> None:
    """Write the weights in half precision, with details of the training that JSON can represent."""
    trunk = network.trunk if isinstance(network, StochasticNetwork) else network
    kind = next(name for name, one in KINDS.items() if isinstance(trunk, one))
    header = {"kind": FILE_KIND, "network": kind, "stochastic": trunk is not network, "n_labels": network.n_labels}
    if isinstance(trunk, UNet):
        header["options"] = trunk.options
    write_model(path, to_arrays(network, half=True), header | {"details": details})


def open_network(path: Path, device: str = "cpu") -> Network | StochasticNetwork:
    """Load a network written by :func:`save`, in evaluation mode."""
    arrays, header = read_model(path)
    if header.get("kind") != FILE_KIND:
        raise InputError(f"{path} holds a {header.get('kind', 'CRF')}, expected a {FILE_KIND}")
    stochastic, options = header["stochastic"], header.get("options")
    network = build(header["network"], header["n_labels"], stochastic=stochastic, options=options)
    load_weights(network, {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()})
    return network.train(False).to(device)


@torch.no_grad()
def predict(network: Network | StochasticNetwork, image: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return logits of an image (H, W, 3) or (H, W): (H, W, K), or (h, w, K) of a linear head.

    Those of a stochastic network are the mean.
    """
    scores = network.coarse if isinstance(network, LinearHead) else network
    logits = scores(as_batch(network, image))[0].float()
    result: npt.NDArray[np.float32] = logits.movedim(0, -1).contiguous().cpu().numpy()
    return result


@torch.no_grad()
def draw(network: StochasticNetwork, image: npt.NDArray[Any], n: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return n sampled label maps (n, H, W): the most likely label of every pixel, given sampled logits.

    Samples are drawn one by one: the first ones are the same for any n.  They differ between devices.
    """
    distribution = network.distribution(as_batch(network, image))
    generator = torch.Generator(distribution[0].device).manual_seed(seed)
    maps = [draw_logits(distribution, 1, generator)[0, 0].argmax(0).to(torch.uint8).cpu() for _ in range(n)]
    return np.stack([each.numpy() for each in maps])


def as_batch(network: torch.nn.Module, image: npt.NDArray[Any]) -> Tensor:
    """Return an image (H, W, 3) or (H, W) as a batch (1, C, H, W) on the device of the network."""
    pixels = torch.tensor(np.ascontiguousarray(image), dtype=torch.float32, device=next(network.parameters()).device)
    return pixels[None, None] if pixels.ndim == 2 else pixels.movedim(-1, 0)[None]
