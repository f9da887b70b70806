"""A network like the paper's for scenes: 19 convolutions, the later ones dilated instead of pooled (DeepLab)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 8
WIDTHS = (64, 128, 256, 512, 512)  # of the five stages, as in VGG-19
REPEATS = (2, 2, 4, 4, 4)
DILATIONS = (1, 1, 1, 1, 2)
WIDE = 1024  # channels of the last two hidden layers
FAR = 12  # dilation of the first of them: each of its pixels sees 96 pixels more each way
MEAN, SCALE = 127.0, 64.0


class DeepLab(torch.nn.Module):  # type: ignore[misc]
    """The 16 convolutions of VGG-19, pooled three times only, then one with a wide view, one 1×1, and the classifier.

    A batch normalisation stands before every ReLU, so that it can be trained without pretraining.

    Args:
        n_labels: K.
        shrink: Divides all widths, for a smaller network.

    >>> import torch
    >>> network = DeepLab(8, shrink=16)
    >>> sum(isinstance(layer, torch.nn.Conv2d) for layer in network.modules())
    19
    >>> network.train(False)(torch.zeros(1, 3, 50, 70)).shape
    torch.Size([1, 8, 50, 70])
    """

    def __init__(self, n_labels: int, *, shrink: int = 1) -> None:
        super().__init__()
        self.n_labels, self.width = n_labels, WIDE // shrink
        self.options = {"shrink": shrink}
        layers: list[torch.nn.Module] = []
        before = 3
        for stage, (width, repeats, dilation) in enumerate(zip(WIDTHS, REPEATS, DILATIONS, strict=True)):
            for _ in range(repeats):
                layers += _convolution(before, width // shrink, 3, dilation)
                before = width // shrink
            if 2 ** (stage + 1) <= STRIDE:
                layers.append(torch.nn.MaxPool2d(2))
        layers += _convolution(before, self.width, 3, FAR)
        layers += _convolution(self.width, self.width, 1, 1)
        self.layers = torch.nn.Sequential(*layers)
        self.classifier = torch.nn.Conv2d(self.width, n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K, H, W) of images (N, 3, H, W), red, green, blue from 0 to 255."""
        return self.to_pixels(self.classifier(self.features(images)), images)

    def features(self, images: Tensor) -> Tensor:
        """The last features (N, width, h, w) at stride 8 of the images, completed with mean grey to multiples of 8."""
        height, width = images.shape[2:]
        completed = F.pad((images - MEAN) / SCALE, (0, -width % STRIDE, 0, -height % STRIDE))
        features: Tensor = self.layers(completed)
        return features

    def to_pixels(self, coarse: Tensor, images: Tensor) -> Tensor:
        """A map (N, C, h, w) that covers the completed images, at the images' own size (N, C, H, W)."""
        height, width = images.shape[2:]
        return F.interpolate(coarse, scale_factor=float(STRIDE), mode="bilinear")[:, :, :height, :width]


def _convolution(before: int, after: int, kernel: int, dilation: int) -> list[torch.nn.Module]:
    convolution = torch.nn.Conv2d(
        before, after, kernel, padding=dilation * (kernel // 2), dilation=dilation, bias=False
    )
    torch.nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
