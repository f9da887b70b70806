"""The fully convolutional network that the paper takes its deep unaries from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locpmap.errors import InputError

WIDTHS = (64, 126, 256, 512)  # as printed, the second too


class FCN(torch.nn.Module):  # type: ignore[misc]
    """3×3 convolutions with ReLU and a 1×1 convolution to the labels; no pooling, so that every pixel has its logits.

    A pixel sees ``2 · len(widths) + 1`` pixels each way: 9 with the paper's four layers, which are the default.

    Args:
        n_labels: K.
        channels: C, of the images.
        widths: Channels of the 3×3 convolutions.
        normalise: Whether a batch normalisation stands before every ReLU, which trains faster; the paper has none.

    >>> import torch
    >>> FCN(n_labels=3)(torch.zeros(2, 1, 5, 6)).shape
    torch.Size([2, 3, 5, 6])
    """

    def __init__(
        self, n_labels: int = 2, channels: int = 1, widths: Sequence[int] = WIDTHS, normalise: bool = False
    ) -> None:
        super().__init__()
        for name, values in (("n_labels", [n_labels]), ("channels", [channels]), ("widths", list(widths))):
            if not values or not all(type(n) is int and n > 0 for n in values):
                raise InputError(f"{name} is {values}, expected whole numbers of at least 1")
        self.n_labels, self.channels, self.widths, self.normalise = n_labels, channels, tuple(widths), normalise
        layers: list[torch.nn.Module] = []
        before = channels
        for width in self.widths:
            convolution = torch.nn.Conv2d(before, width, 3, padding=1, bias=not normalise)
            torch.nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, *([torch.nn.BatchNorm2d(width)] if normalise else []), torch.nn.ReLU()]
            before = width
        self.features = torch.nn.Sequential(*layers)
        self.classifier = torch.nn.Conv2d(before, n_labels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K, H, W) of images (N, C, H, W); O(N·H·W) times 1.5 million for the paper's widths."""
        logits: Tensor = self.classifier(self.features(images))
        return logits
