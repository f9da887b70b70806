"""
Refine coarse logits
====================

Networks often return logits at an eighth of the image's size. ``lp.refine`` aligns them with the edges of the
image and returns calibrated uncertainty.

.. admonition:: What to see

   Outlines move to the edges of the image, and fewer pixels are wrong. The chimney is too thin for the coarse
   logits; traces of it remain in the probability and the variance. The variance also shows how uncertain each
   outline is.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from scipy.ndimage import gaussian_filter, zoom

import locpmap as lp

# sky, hill, lake, field, house, sun
PAINT = np.array([[158, 202, 225], [88, 112, 92], [52, 110, 150], [170, 178, 86], [176, 84, 62], [250, 214, 120]])
COLOURS = ListedColormap(["#bcd9ea", "#5b7f67", "#0072B2", "#bdbf4d", "#D55E00", "#f5c542"])

# %%
# A synthetic scene: labels, an image of them with texture and noise, and logits at stride 8.
H, W = 192, 288
rng = np.random.default_rng(4)
rows, columns = np.mgrid[:H, :W]
truth = np.zeros((H, W), int)
truth[rows > 95 - 30 * np.sin(columns / 40) - 18 * np.sin(columns / 17)] = 1
truth[np.hypot(rows - 38, columns - 225) < 20] = 5
truth[rows > 122 + 5 * np.sin(columns / 25)] = 2
truth[rows > 150 + 0.0009 * (columns - 190) ** 2 - 0.12 * columns] = 3
truth[(rows > 105) & (rows < 152) & (columns > 178) & (columns < 226)] = 4
truth[(rows > 84) & (rows <= 105) & (np.abs(columns - 202) < (rows - 84) * 1.5)] = 4
truth[(rows > 72) & (rows < 98) & (columns > 214) & (columns < 221)] = 4  # a chimney

texture = gaussian_filter(rng.normal(size=(H, W, 3)), (3, 3, 0)) * 60 + 9 * rng.normal(size=(H, W, 3))
image = np.clip(PAINT[truth] + texture, 0, 255).astype(np.uint8)

soft = gaussian_filter(np.eye(6)[truth], (5, 5, 0))
logits = np.log(soft + 0.02)[4::8, 4::8] + 0.35 * rng.normal(size=(H // 8, W // 8, 6))

# %%
# One call refines the logits and resizes them to the image.
result = lp.refine(image, logits, seed=0)

# %%
coarse = zoom(logits, (8, 8, 1), order=1, grid_mode=True, mode="nearest").argmax(axis=-1)
fig, axes = plt.subplots(2, 3, figsize=(9.6, 4.8))
panels: dict[str, tuple[np.ndarray, dict]] = {
    "image": (image, {}),
    f"coarse logits: {np.mean(coarse != truth):.1%} wrong": (coarse, {"cmap": COLOURS, "vmin": 0, "vmax": 5}),
    f"refined: {np.mean(result.labels != truth):.1%} wrong": (result.labels, {"cmap": COLOURS, "vmin": 0, "vmax": 5}),
    "true labels": (truth, {"cmap": COLOURS, "vmin": 0, "vmax": 5}),
    "probability of house": (result.probability[..., 4], {"cmap": "viridis", "vmin": 0, "vmax": 1}),
    "variance, summed over labels": (result.variance.sum(axis=-1), {"cmap": "magma"}),
}
for ax, (title, (picture, options)) in zip(axes.flat, panels.items(), strict=True):
    ax.imshow(picture, **options)
    ax.set_title(title)
    ax.axis("off")
plt.show()
