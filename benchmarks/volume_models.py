"""Segmentation networks of volumes: a U-Net of 3-D convolutions, and a network with one score per 2 × 2 × 2 voxels."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTHS = (16, 32, 64, 64)  # channels of the U-Net at strides 1, 2, 4 and 8
CELL, DILATIONS, WIDTH = 2, (1, 2, 4, 1), 32  # of the coarse network: voxels per score, its convolutions, channels


class UNet3D(torch.nn.Module):  # type: ignore[misc]
    """A U-Net of 3-D convolutions, for scans of one channel and any size.

    Args:
        n_labels (int): Number of labels, K.
        widths (sequence of int): Channels at strides 1, 2, 4 and so on.

    Example:
        >>> UNet3D(3, (4, 8)).train(False)(torch.zeros(1, 1, 7, 9, 6)).shape
        torch.Size([1, 3, 7, 9, 6])
    """

    def __init__(self, n_labels: int, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        self.down = torch.nn.ModuleList(_pair(a, b) for a, b in zip((1, *widths), widths, strict=False))
        self.up = torch.nn.ModuleList(_pair(a + b, a) for a, b in pairwise(widths))
        self.classifier = torch.nn.Conv3d(widths[0], n_labels, 1)

    def forward(self, scans: Tensor) -> Tensor:
        """Return logits (N, K, D, H, W) of scans (N, 1, D, H, W), padded to multiples of the last stride."""
        stride = 2 ** (len(self.down) - 1)
        level = F.pad(scans, [n for size in scans.shape[:1:-1] for n in (0, -size % stride)])
        levels = []
        for number, layers in enumerate(self.down):
            level = layers(F.max_pool3d(level, 2) if number else level)
            levels.append(level)
        for below, layers in list(zip(levels, self.up, strict=False))[::-1]:
            level = layers(torch.cat([below, F.interpolate(level, scale_factor=2.0, mode="trilinear")], 1))
        depth, height, width = scans.shape[2:]
        logits: Tensor = self.classifier(level)[:, :, :depth, :height, :width]
        return logits


class CoarseFCN(torch.nn.Module):  # type: ignore[misc]
    """Dilated 3-D convolutions at half the resolution, without a path for fine detail; it sees 34 voxels across.

    Args:
        n_labels (int): Number of labels, K.

    Example:
        >>> CoarseFCN(3).train(False).coarse(torch.zeros(1, 1, 7, 9, 6)).shape
        torch.Size([1, 3, 4, 5, 3])
    """

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = [torch.nn.Conv3d(1, WIDTH, CELL, stride=CELL), torch.nn.ReLU()]
        for dilation in DILATIONS:
            convolution = torch.nn.Conv3d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation, bias=False)
            layers += [convolution, torch.nn.BatchNorm3d(WIDTH), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Conv3d(WIDTH, n_labels, 1))

    def forward(self, scans: Tensor) -> Tensor:
        """Return the scores, enlarged to the size of scans (N, 1, D, H, W)."""
        return F.interpolate(self.coarse(scans), size=scans.shape[2:], mode="trilinear")

    def coarse(self, scans: Tensor) -> Tensor:
        """Return the scores (N, K, d, h, w) of scans that are first resized to whole cells."""
        cells = [CELL * -(-n // CELL) for n in scans.shape[2:]]
        found: Tensor = self.layers(F.interpolate(scans, size=cells, mode="trilinear"))
        return found


def _pair(before: int, after: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for channels in (before, after):
        layers += [
            torch.nn.Conv3d(channels, after, 3, padding=1, bias=False),
            torch.nn.BatchNorm3d(after),  # training volumes are padded, so statistics of one volume would differ
        ]
        layers += [torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


KINDS: dict[str, type[torch.nn.Module]] = {"unet": UNet3D, "fcn": CoarseFCN}
