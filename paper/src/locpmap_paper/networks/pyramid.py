"""A feature pyramid network: logits for every pixel from the levels of a pretrained encoder."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap_paper.networks.efficientnet import CHANNELS, MEAN, STRIDES, EfficientNetLite0


class PyramidNetwork(torch.nn.Module):  # type: ignore[misc]
    """An encoder and a light decoder that adds its levels from the coarsest to the finest (Lin et al., 2017).

    Args:
        n_labels (int): Number of labels, K.
        encoder (EfficientNetLite0, optional): Encoder; by default a new one with random weights.
        width (int, default 128): Number of channels of the decoder.
        zoom (float, default 1.0): Magnification of the images before the encoder.
        context (bool, default False): Whether a projection of the mean of the coarsest level is added to that level,
            as a descriptor of the whole scene.

    Example:
        >>> import torch
        >>> PyramidNetwork(8, width=16).train(False)(torch.zeros(1, 3, 50, 70)).shape
        torch.Size([1, 8, 50, 70])
    """

    def __init__(
        self,
        n_labels: int,
        encoder: EfficientNetLite0 | None = None,
        *,
        width: int = 128,
        zoom: float = 1.0,
        context: bool = False,
    ) -> None:
        super().__init__()
        self.n_labels, self.width, self.zoom = n_labels, width, zoom
        self.options = {"width": width, "zoom": zoom, "context": context}
        self.encoder = encoder or EfficientNetLite0()
        self.lateral = torch.nn.ModuleList(torch.nn.Conv2d(channels, width, 1) for channels in CHANNELS)
        self.smooth = torch.nn.ModuleList(_smoothing(width) for _ in CHANNELS)
        self.context = torch.nn.Conv2d(CHANNELS[-1], width, 1) if context else None
        self.last = _smoothing(width)
        self.classifier = torch.nn.Conv2d(width, n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K, H, W) of RGB images (N, 3, H, W) from 0 to 255."""
        return self.to_pixels(self.classifier(self.features(images)), images)

    def features(self, images: Tensor) -> Tensor:
        """Return the decoder's last feature map (N, width, h, w), at stride 2 of the enlarged images.

        The enlarged images are padded with grey, at the bottom and right, to multiples of 32.
        """
        # Rounded up before zooming: interpolation drops the last fraction of a pixel, which to_pixels needs.
        whole = [STRIDES[-1] * math.ceil(n * self.zoom / STRIDES[-1]) for n in images.shape[2:]]
        if self.zoom != 1:
            images = F.interpolate(images, scale_factor=self.zoom, mode="bilinear")
        height, width = images.shape[2:]
        images = F.pad(images - MEAN, (0, whole[1] - width, 0, whole[0] - height)) + MEAN
        levels = self.encoder(images)
        below = self.lateral[-1](levels[-1])
        if self.context is not None:
            below = below + self.context(levels[-1].mean((2, 3), keepdim=True))
        below = self.smooth[-1](below)
        for level, lateral, smooth in list(zip(levels, self.lateral, self.smooth, strict=True))[-2::-1]:
            below = smooth(lateral(level) + F.interpolate(below, size=level.shape[2:], mode="bilinear"))
        features: Tensor = self.last(below)
        return features

    def to_pixels(self, coarse: Tensor, images: Tensor) -> Tensor:
        """Upsample a map (N, C, h, w) of the padded images and crop it to the size of the images (N, C, H, W)."""
        height, width = images.shape[2:]
        scale = STRIDES[0] / self.zoom
        fine = F.interpolate(coarse, scale_factor=scale, mode="bilinear")
        return fine[:, :, :height, :width]


def _smoothing(width: int) -> torch.nn.Sequential:
    convolution = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
    return torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(width), torch.nn.ReLU())
