"""Features of pixels: colour in three spaces, and the responses of a filter bank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Channels = npt.NDArray[np.float32]

SCALES = (1, 2, 4)  # standard deviations of the Gaussians, in pixels
COLOUR_SCALES = (1, 3)
N_ORIENTATIONS = 4


def pixel_features(image: Image) -> Channels:
    """Return features (H, W, 32) of an image (H, W, 3): 9 of colour, 19 of lightness texture, 4 of colour texture."""
    from skimage.color import rgb2hsv, rgb2lab

    rgb = image.astype(np.float32) / 255
    lab = rgb2lab(rgb).astype(np.float32) / 100
    hue, saturation = np.moveaxis(rgb2hsv(rgb)[..., :2], -1, 0)
    angle = 2 * np.pi * hue
    channels = [
        *np.moveaxis(rgb, -1, 0),
        *np.moveaxis(lab, -1, 0),
        *(
            saturation * np.cos(angle),
            saturation * np.sin(angle),
            saturation,
        ),  # hue as a point in the plane, because it is periodic
        *_lightness_texture(lab[..., 0]),
        *_colour_texture(lab[..., 1:]),
    ]
    return np.stack(channels, axis=-1).astype(np.float32)


def _lightness_texture(lightness: Channels) -> Iterator[Channels]:
    """Yield scaled derivatives and the local standard deviation at every scale, and orientations at the finest."""
    from scipy.ndimage import gaussian_filter, gaussian_laplace

    for scale in SCALES:
        across = gaussian_filter(lightness, scale, order=(0, 1)) * scale
        down = gaussian_filter(lightness, scale, order=(1, 0)) * scale
        strength = np.hypot(across, down)
        yield from (np.abs(across), np.abs(down), strength)
        yield np.abs(gaussian_laplace(lightness, scale)) * scale**2
        mean = gaussian_filter(lightness, scale)
        yield np.sqrt(np.maximum(gaussian_filter(lightness**2, scale) - mean**2, 0))
        if scale == SCALES[0]:
            yield from _orientations(np.arctan2(down, across), strength)


def _orientations(angle: Channels, strength: Channels) -> Iterator[Channels]:
    """Distribute the gradient's strength linearly over the two nearest unsigned orientations."""
    width = np.pi / N_ORIENTATIONS
    for k in range(N_ORIENTATIONS):
        away = np.abs((angle - k * width + np.pi / 2) % np.pi - np.pi / 2)
        yield strength * np.maximum(0, 1 - away / width)


def _colour_texture(colour: Channels) -> Iterator[Channels]:
    from scipy.ndimage import gaussian_gradient_magnitude

    for channel in np.moveaxis(colour, -1, 0):
        for scale in COLOUR_SCALES:
            yield gaussian_gradient_magnitude(channel, scale) * scale
