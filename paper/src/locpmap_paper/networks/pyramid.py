"""A feature pyramid: the levels of a pretrained encoder, from coarse to fine, made into logits of every pixel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap_paper.networks.efficientnet import CHANNELS, MEAN, STRIDES, EfficientNetLite0


class PyramidNetwork(torch.nn.Module):  # type: ignore[misc]
    """Encoder, and a light decoder that adds its levels from the coarsest to the finest (Lin et al., 2017).

    Args:
        n_labels: K.
        encoder: Gives the levels; a new one with random weights by default.
        width: Channels of the decoder.
        zoom: How many times larger the encoder sees the images.
        context: Whether the mean of the coarsest level is added to all of it: what kind of scene this is.

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
        """Logits (N, K, H, W) of images (N, 3, H, W), red, green, blue from 0 to 255."""
        return self.to_pixels(self.classifier(self.features(images)), images)

    def features(self, images: Tensor) -> Tensor:
        """The decoder's last features (N, width, h, w), at stride 2 of the zoomed images.

        These are completed with mean grey, below and to the right, to multiples of 32.
        """
        # Zooming drops the last fraction of a pixel, which to_pixels asks for.
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
        """A map (N, C, h, w) that covers the zoomed and completed images, at the images' own size (N, C, H, W)."""
        height, width = images.shape[2:]
        scale = STRIDES[0] / self.zoom
        fine = F.interpolate(coarse, scale_factor=scale, mode="bilinear")
        return fine[:, :, :height, :width]


def _smoothing(width: int) -> torch.nn.Sequential:
    convolution = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
    return torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(width), torch.nn.ReLU())
