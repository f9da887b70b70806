"""The fully convolutional network of the LocPMAP paper."""

from collections.abc import Sequence

import torch
from torch import Tensor

from locpmap.errors import InputError

WIDTHS = (64, 126, 256, 512)  # as printed in the paper, including the 126


class FCN(torch.nn.Module):  # type: ignore[misc]
    """Fully convolutional network: 3×3 convolutions with ReLU, and a 1×1 convolution to the labels.

    There is no pooling, so every pixel has its own logits. The receptive field is a square with a side of
    ``2 · len(widths) + 1`` pixels: 9 for the default widths, which are those of the paper.

    Args:
        n_labels (int, default 2): Number of labels K, at least 1.
        channels (int, default 1): Number of channels C of the images, at least 1.
        widths (sequence of int, default (64, 126, 256, 512)): Output channels of the 3×3 convolutions, at least one
            number.
        normalise (bool, default False): Whether to apply batch normalisation before every ReLU. It speeds up training;
            the paper has none.

    Example:
        >>> from locpmap.nn import FCN
        >>> import torch
        >>> FCN(n_labels=3)(torch.zeros(2, 1, 5, 6)).shape
        torch.Size([2, 3, 5, 6])

    See Also:
        :class:`CRFNetwork`.
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
        """Return logits (N, K, H, W) of images (N, C, H, W); 1.5 million multiplications per pixel by default."""
        return self.classifier(self.features(images))
