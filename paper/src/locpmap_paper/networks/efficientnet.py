"""EfficientNet-Lite0, a small image encoder pretrained on ImageNet (Tan and Le, 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.fetch import Progress
from locpmap_paper.networks.published import published_weights
from locpmap_paper.networks.weights import load_weights

MEAN, SCALE = 127.0, 128.0  # the published weights expect pixels from about -1 to 1
EPSILON = 1e-3  # of the batch normalisations
STEM = 32

# Repeats, kernel size, stride, expansion and channels of each stage.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
CHANNELS = (16, 24, 40, 112, 320)  # of the last block at each stride
STRIDES = (2, 4, 8, 16, 32)


class EfficientNetLite0(torch.nn.Module):  # type: ignore[misc]
    """An encoder that returns feature maps at strides 2, 4, 8, 16 and 32.

    The weights are random; :meth:`published` returns an encoder with pretrained weights.

    Args:
        drop (float, default 0.0): Limit of the probability of skipping a block's residual branch in training
            (stochastic depth).  The probability grows linearly with depth, from 0 at the first block.

    Example:
        >>> import torch
        >>> [tuple(level.shape) for level in EfficientNetLite0()(torch.zeros(1, 3, 64, 96))][::2]
        [(1, 16, 32, 48), (1, 40, 8, 12), (1, 320, 2, 3)]
    """

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.stem = _normalised(SameConv(3, STEM, 3, 2))
        blocks: list[Block] = []
        before, n_blocks = STEM, sum(stage[0] for stage in STAGES)
        for repeats, kernel, stride, expansion, channels in STAGES:
            for repeat in range(repeats):
                probability = drop * len(blocks) / n_blocks
                blocks.append(Block(before, channels, kernel, stride if repeat == 0 else 1, expansion, probability))
                before = channels
        self.blocks = torch.nn.ModuleList(blocks)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return five maps (N, C, H / stride, W / stride) of RGB images (N, 3, H, W) from 0 to 255.

        Height and width must be multiples of 32, so that all levels cover the same area.
        """
        level = self.stem((images - MEAN) / SCALE)
        levels = []
        for block in self.blocks:
            if block.stride == 2:
                levels.append(level)
            level = block(level)
        return [*levels, level]

    @classmethod
    def published(
        cls, *, drop: float = 0.0, folder: PathLike | None = None, progress: Progress | None = None
    ) -> EfficientNetLite0:
        """Return an encoder with weights learned on ImageNet, from the cache or downloaded (17 MB)."""
        encoder = cls(drop)
        weights = published_weights("efficientnet_lite0", folder=folder, progress=progress)
        load_weights(encoder, weights)
        return encoder


class Block(torch.nn.Module):  # type: ignore[misc]
    """An inverted residual block: expand, depthwise convolution, project; plus the input if shapes agree."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int, drop: float) -> None:
        super().__init__()
        inside = before * expansion
        self.stride, self.drop = stride, drop
        self.residual = stride == 1 and before == after
        self.widen = _normalised(SameConv(before, inside, 1)) if expansion > 1 else torch.nn.Identity()
        self.spread = _normalised(SameConv(inside, inside, kernel, stride, groups=inside))
        self.narrow = _normalised(SameConv(inside, after, 1), active=False)

    def forward(self, level: Tensor) -> Tensor:
        change: Tensor = self.narrow(self.spread(self.widen(level)))
        if not self.residual:
            return change
        if self.training and self.drop > 0:
            retained = torch.rand(len(change), 1, 1, 1, device=change.device) >= self.drop
            change = change * retained / (1 - self.drop)
        return level + change


class SameConv(torch.nn.Conv2d):  # type: ignore[misc]
    """A convolution padded as in TensorFlow for even sizes: the end gets the extra padding, as the weights expect."""

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, after, kernel, stride, groups=groups, bias=False)
        total = kernel - stride
        self.around: tuple[int, ...] = (total // 2, total - total // 2) * 2
        if stride == 1:  # symmetric padding, which Conv2d can do itself
            self.padding, self.around = (total // 2, total // 2), ()

    def forward(self, image: Tensor) -> Tensor:
        padded = F.pad(image, self.around) if self.around else image
        result: Tensor = super().forward(padded)
        return result


def _normalised(convolution: SameConv, active: bool = True) -> torch.nn.Sequential:
    norm = torch.nn.BatchNorm2d(convolution.out_channels, eps=EPSILON)
    return torch.nn.Sequential(convolution, norm, *([torch.nn.ReLU6()] if active else []))
