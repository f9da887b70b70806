"""Segmentation networks of the benchmarks: two architectures, a stochastic head, files, prediction and draws."""

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
from locpmap_paper.networks.efficientnet import EfficientNetLite0
from locpmap_paper.networks.pyramid import PyramidNetwork
from locpmap_paper.networks.weights import load_weights, to_arrays

FILE_KIND = "benchmark network"
RANK = 10  # of the covariance factor of a stochastic segmentation network
FIRST_LOG_DEVIATION = -2.0
MOST_LOG_DEVIATION = 5.0
WIDTHS = (16, 32, 64)  # channels of the U-Net at strides 1, 2 and 4


class UNet(torch.nn.Module):  # type: ignore[misc]
    """A small U-Net (about 120,000 weights) for images with one channel.

    Example:
        >>> UNet(2).train(False)(torch.zeros(1, 1, 28, 30)).shape
        torch.Size([1, 2, 28, 30])
    """

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.n_labels, self.width = n_labels, WIDTHS[0]
        self.down = torch.nn.ModuleList(_pair(a, b) for a, b in zip((1, *WIDTHS), WIDTHS, strict=False))
        self.up = torch.nn.ModuleList(_pair(a + b, a) for a, b in pairwise(WIDTHS))
        self.classifier = torch.nn.Conv2d(self.width, n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K, H, W) of images (N, 1, H, W)."""
        return self.to_pixels(self.classifier(self.features(images)), images)

    def features(self, images: Tensor) -> Tensor:
        """Return the last features (N, 16, H, W); height and width are padded to multiples of 4."""
        stride = 2 ** (len(WIDTHS) - 1)
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


Trunk = PyramidNetwork | UNet


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
    kind: str, n_labels: int, *, stochastic: bool, encoder: EfficientNetLite0 | None = None
) -> Trunk | StochasticNetwork:
    """Return a new network of the kind "unet" or "pyramid"; the encoder of a pyramid may have published weights."""
    trunk = UNet(n_labels) if kind == "unet" else PyramidNetwork(n_labels, encoder, context=True)
    return StochasticNetwork(trunk) if stochastic else trunk


def save(path: Path, network: Trunk | StochasticNetwork, details: dict[str, Any]) -> None:
    """Write the weights in half precision, with details of the training that JSON can represent."""
    trunk = network.trunk if isinstance(network, StochasticNetwork) else network
    kind = "unet" if isinstance(trunk, UNet) else "pyramid"
    header = {"kind": FILE_KIND, "network": kind, "stochastic": trunk is not network, "n_labels": network.n_labels}
    write_model(path, to_arrays(network, half=True), header | {"details": details})


def open_network(path: Path, device: str = "cpu") -> Trunk | StochasticNetwork:
    """Load a network written by :func:`save`, in evaluation mode."""
    arrays, header = read_model(path)
    if header.get("kind") != FILE_KIND:
        raise InputError(f"{path} holds a {header.get('kind', 'CRF')}, expected a {FILE_KIND}")
    network = build(header["network"], header["n_labels"], stochastic=header["stochastic"])
    load_weights(network, {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()})
    return network.train(False).to(device)


@torch.no_grad()
def predict(network: Trunk | StochasticNetwork, image: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return logits (H, W, K) of an image (H, W, 3) or (H, W); of a stochastic network, the mean."""
    logits = network(as_batch(network, image))[0].float()
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
