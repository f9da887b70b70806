"""Boundary detection by holistically-nested edge detection (HED; Xie and Tu, 2015) with published weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap.errors import InputError, whole_number
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.fetch import Progress
from locpmap_paper.networks.published import published_weights

EdgeMap = npt.NDArray[np.float32]

MEAN = (104.00699, 116.66877, 122.67892)  # of blue, green and red, the channel order of the weights
WIDTHS = (64, 128, 256, 512, 512)  # of VGG-16's five stages
REPEATS = (2, 2, 3, 3, 3)


class HED(torch.nn.Module):  # type: ignore[misc]
    """VGG-16 with a boundary map per stage, and a layer that fuses the five maps.

    The weights are random; :meth:`published` returns a network with pretrained weights.

    Example:
        >>> import torch
        >>> HED()(torch.zeros(2, 3, 37, 50)).shape
        torch.Size([2, 1, 37, 50])
    """

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        befores = (3, *WIDTHS)
        self.trunk = torch.nn.ModuleList(
            torch.nn.ModuleList(
                torch.nn.Conv2d(before if layer == 0 else width, width, 3, padding=1) for layer in range(repeats)
            )
            for before, width, repeats in zip(befores, WIDTHS, REPEATS, strict=False)
        )
        self.sides = torch.nn.ModuleList(torch.nn.Conv2d(width, 1, 1) for width in WIDTHS)
        self.fusion = torch.nn.Conv2d(len(WIDTHS), 1, 1)
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return boundary logits (N, 1, H, W) of RGB images (N, 3, H, W) of any size, from 0 to 255.

        The cost is 0.6 million multiplications per pixel.
        """
        height, width = images.shape[2:]
        level, sides = images.flip(1) - self.mean, []
        for stage, (layers, side) in enumerate(zip(self.trunk, self.sides, strict=True)):
            if stage > 0:
                level = F.max_pool2d(level, 2, ceil_mode=True)  # keeps the last row and column of odd sizes
            for layer in layers:
                level = F.relu(layer(level))
            sides.append(F.interpolate(side(level), size=(height, width), mode="bilinear"))
        logits: Tensor = self.fusion(torch.cat(sides, 1))
        return logits

    @classmethod
    def published(cls, *, folder: PathLike | None = None, progress: Progress | None = None) -> HED:
        """Return a network in evaluation mode with weights learned on BSDS500, cached or downloaded (55 MB)."""
        network = cls()
        network.load_state_dict(published_weights("hed", folder=folder, progress=progress))
        return network.train(False)

    def edge_map(self, image: npt.NDArray[np.uint8]) -> EdgeMap:
        """Return the boundary probabilities (H, W) of one image (H, W, 3)."""
        return self.edge_maps([image])[0]

    @torch.no_grad()
    def edge_maps(
        self,
        images: Sequence[npt.NDArray[np.uint8]],
        *,
        batch_size: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[EdgeMap]:
        """Return the boundary probabilities of images of any sizes, computed on the device of the weights.

        Args:
            images: Images (H, W, 3) in uint8.
            batch_size (int, default 1): Number of images of the same size per forward pass; values above 1 are faster
                on a GPU only.
            progress: Function called with (images done, number of images).
        """
        batch_size = whole_number("batch_size", batch_size, 1, 2**31 - 1)
        of_size: dict[tuple[int, ...], list[int]] = {}
        for number, image in enumerate(images):
            if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
                raise InputError(f"image has shape {image.shape} and dtype {image.dtype}, expected (H, W, 3) and uint8")
            of_size.setdefault(image.shape, []).append(number)
        found: dict[int, EdgeMap] = {}
        for numbers in of_size.values():
            for start in range(0, len(numbers), batch_size):
                chosen = numbers[start : start + batch_size]
                batch = torch.from_numpy(np.stack([images[number] for number in chosen])).to(self.mean.device)
                edges = self(batch.movedim(-1, 1).float()).sigmoid()[:, 0].cpu().numpy()
                found |= zip(chosen, edges, strict=True)
                if progress is not None:
                    progress(len(found), len(images))
        return [found[number] for number in range(len(images))]
