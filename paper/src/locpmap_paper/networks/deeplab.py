"""A network like the paper's for scenes: 19 convolutions, dilated instead of pooled in the later stages (DeepLab)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 8
WIDTHS = (64, 128, 256, 512, 512)  # channels of the five stages, as in VGG-19
REPEATS = (2, 2, 4, 4, 4)
DILATIONS = (1, 1, 1, 1, 2)
WIDE = 1024  # channels of the last two hidden layers
FAR = 12  # dilation of the first one: extends the receptive field by 96 pixels in each direction
MEAN, SCALE = 127.0, 64.0


class DeepLab(torch.nn.Module):  # type: ignore[misc]
    """A segmentation network in the style of DeepLab.

    It consists of the 16 convolutions of VGG-19 with only three pooling layers, a 3×3 convolution of dilation 12, a
    1×1 convolution, and the classifier.  Batch normalisation precedes every ReLU, so that the network can be trained
    from scratch.

    Args:
        n_labels (int): Number of labels, K.
        shrink (int, default 1): Divisor of all widths, for a smaller network.

    Example:
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
        """Return logits (N, K, H, W) of RGB images (N, 3, H, W) from 0 to 255."""
        return self.to_pixels(self.classifier(self.features(images)), images)

    def features(self, images: Tensor) -> Tensor:
        """Return the last features (N, width, h, w) at stride 8; images are padded with grey to multiples of 8."""
        height, width = images.shape[2:]
        completed = F.pad((images - MEAN) / SCALE, (0, -width % STRIDE, 0, -height % STRIDE))
        features: Tensor = self.layers(completed)
        return features

    def to_pixels(self, coarse: Tensor, images: Tensor) -> Tensor:
        """Upsample a map (N, C, h, w) of the padded images and crop it to the size of the images (N, C, H, W)."""
        height, width = images.shape[2:]
        return F.interpolate(coarse, scale_factor=float(STRIDE), mode="bilinear")[:, :, :height, :width]


def _convolution(before: int, after: int, kernel: int, dilation: int) -> list[torch.nn.Module]:
    convolution = torch.nn.Conv2d(
        before, after, kernel, padding=dilation * (kernel // 2), dilation=dilation, bias=False
    )
    torch.nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
