"""Boundaries of objects: holistically-nested edge detection (Xie and Tu, 2015), from published weights."""

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

MEAN = (104.00699, 116.66877, 122.67892)  # of blue, green and red, which the weights expect in this order
WIDTHS = (64, 128, 256, 512, 512)  # of VGG-16's five stages
REPEATS = (2, 2, 3, 3, 3)


class HED(torch.nn.Module):  # type: ignore[misc]
    """VGG-16 whose five stages each draw the boundaries that they see, and a layer that weighs the five drawings.

    Random weights unless :meth:`published` made it.

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
        """Logits (N, 1, H, W) of a boundary in images (N, 3, H, W), red, green, blue from 0 to 255, of any size.

        Costs 0.6 million multiplications per pixel.
        """
        height, width = images.shape[2:]
        level, sides = images.flip(1) - self.mean, []
        for stage, (layers, side) in enumerate(zip(self.trunk, self.sides, strict=True)):
            if stage > 0:
                level = F.max_pool2d(level, 2, ceil_mode=True)  # half a cell at the end of an odd size counts too
            for layer in layers:
                level = F.relu(layer(level))
            sides.append(F.interpolate(side(level), size=(height, width), mode="bilinear"))
        logits: Tensor = self.fusion(torch.cat(sides, 1))
        return logits

    @classmethod
    def published(cls, *, folder: PathLike | None = None, progress: Progress | None = None) -> HED:
        """With the weights that were learned on BSDS500, from the cache or fetched (55 MB); in evaluation mode."""
        network = cls()
        network.load_state_dict(published_weights("hed", folder=folder, progress=progress))
        return network.train(False)

    def edge_map(self, image: npt.NDArray[np.uint8]) -> EdgeMap:
        """How likely every pixel of one image (H, W, 3) lies on a boundary, (H, W) from 0 to 1."""
        return self.edge_maps([image])[0]

    @torch.no_grad()
    def edge_maps(
        self,
        images: Sequence[npt.NDArray[np.uint8]],
        *,
        batch_size: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[EdgeMap]:
        """The edge maps of many images of any sizes, on the device where the weights are.

        Args:
            images: Each (H, W, 3).
            batch_size: Images of one size that go through the network at once; more than 1 pays on a GPU only.
            progress: Called with (images done, images in all).
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
