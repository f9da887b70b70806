"""Training batches of equal size from scenes of different sizes: shifted, rotated, scaled, mirrored and recoloured.

All random numbers come from the generator of the training step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError
from locpmap_paper.data.scenes import VOID, Scene

GREY = 127.0  # value outside a scene
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Variation:
    """Ranges of the random augmentation.

    Args:
        scale: Smallest and largest magnification, drawn log-uniformly.
        stretch: Aspect ratio: width / height is multiplied by exp(s), with |s| up to this value.
        turn: Largest rotation in radians.
        brightness: Standard deviation of a value added to all channels, in grey values.
        tint: Standard deviation of a value added to each channel independently.
        contrast: Contrast: the difference from the value 127 is multiplied by exp(s), with |s| up to this value.
        saturation: Saturation: the distance from grey is multiplied by exp(s), with |s| up to this value.
    """

    scale: tuple[float, float] = (0.75, 1.6)
    stretch: float = 0.1
    turn: float = 0.12
    brightness: float = 15.0
    tint: float = 8.0
    contrast: float = 0.25
    saturation: float = 0.4


class SceneBatches:
    """Random batches of images (N, 3, H, W) from 0 to 255 and labels (N, H, W) for training.

    Args:
        scenes: (name, image, labels) of any sizes; stored on the device in one array, 0.4 MB per scene of 320 × 320.
        batch_size: Number of images in a batch, N.
        crop: Height and width of the images, (H, W).
        device: Device of the batches.
        variation: Ranges of the augmentation.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        batch_size: int,
        crop: tuple[int, int],
        device: torch.device,
        variation: Variation,
    ) -> None:
        if len(scenes) == 0:
            raise InputError("scenes is empty, expected at least one to learn from")
        self.batch_size, self.crop, self.variation = batch_size, crop, variation
        sizes = np.array([labels.shape for _, _, labels in scenes])
        height, width = sizes.max(0)
        images = np.full((len(scenes), 3, height, width), GREY, np.uint8)
        targets = np.full((len(scenes), height, width), VOID, np.int8)
        for number, (_, image, labels) in enumerate(scenes):
            rows, columns = labels.shape
            images[number, :, :rows, :columns] = np.moveaxis(image, -1, 0)
            targets[number, :rows, :columns] = labels
        self.images, self.labels = torch.from_numpy(images).to(device), torch.from_numpy(targets).to(device)
        self.sizes = torch.from_numpy(sizes).to(device, torch.float32)

    def __call__(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        device = self.images.device
        chosen = torch.randint(len(self.images), (self.batch_size,), generator=generator, device=device)
        draw = torch.rand(self.batch_size, 8, generator=generator, device=device)
        normal = torch.randn(self.batch_size, 4, generator=generator, device=device)
        grid = self._places(self.sizes[chosen], draw)
        pixels = self.images[chosen].float() - GREY  # centred, because grid_sample pads with 0
        pixels = F.grid_sample(pixels, grid, mode="bilinear", align_corners=False)
        coded = (self.labels[chosen] - VOID).float()[:, None]  # 0 encodes void, which is also the padding
        labels = F.grid_sample(coded, grid, mode="nearest", align_corners=False)[:, 0].long() + VOID
        return self._recoloured(pixels, draw[:, 6:], normal) + GREY, labels

    def _places(self, sizes: Tensor, draw: Tensor) -> Tensor:
        """Return the source position of every pixel of the crops, (N, H, W, 2), in grid_sample coordinates."""
        vary = self.variation
        low, high = (math.log(limit) for limit in vary.scale)
        zoom = torch.exp(low + (high - low) * draw[:, 0])
        stretch = torch.exp(vary.stretch * (draw[:, 1] - 0.5))
        across, down = zoom * stretch, zoom / stretch  # pixels of the crop per pixel of the scene
        angle = vary.turn * (2 * draw[:, 2] - 1)
        mirror = torch.where(draw[:, 3] < 0.5, -1.0, 1.0)
        # The crop lies inside the scene or, if it is larger, the scene lies inside the crop.
        extent = torch.stack([self.crop[0] / down, self.crop[1] / across], 1)
        centre = sizes / 2 + (sizes - extent) * (draw[:, 4:6] - 0.5)
        rows, columns = (torch.arange(n, device=draw.device) + 0.5 - n / 2 for n in self.crop)
        x = columns[None, None, :] / across[:, None, None] * mirror[:, None, None]
        y = rows[None, :, None] / down[:, None, None]
        cosine, sine = angle.cos()[:, None, None], angle.sin()[:, None, None]
        at_row = centre[:, 0, None, None] + sine * x + cosine * y
        at_column = centre[:, 1, None, None] + cosine * x - sine * y
        height, width = self.labels.shape[1:]
        return torch.stack([2 * at_column / width - 1, 2 * at_row / height - 1], -1)

    def _recoloured(self, pixels: Tensor, draw: Tensor, normal: Tensor) -> Tensor:
        """Change contrast, saturation, brightness and tint of centred pixels."""
        vary = self.variation
        weights = torch.tensor(LUMINANCE, device=pixels.device)[None, :, None, None]
        contrast, saturation = (
            torch.exp(most * (2 * draw[:, k] - 1))[:, None, None, None]
            for k, most in enumerate((vary.contrast, vary.saturation))
        )
        grey = (pixels * weights).sum(1, keepdim=True)
        shift = vary.brightness * normal[:, :1] + vary.tint * normal[:, 1:]
        changed = contrast * (grey + saturation * (pixels - grey)) + shift[:, :, None, None]
        return changed.clamp(-GREY, 255 - GREY)
