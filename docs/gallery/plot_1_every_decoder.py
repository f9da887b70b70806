"""
Every decoder on one image
==========================

A noisy image of a horse, decoded by every decoder of ``lp.infer``.

.. admonition:: What to see

   The decoders of the second row return labels only. The others also return probabilities: grey pixels are
   uncertain. The Potts weight is set by hand here. With it ``mean_field``, ``lbp`` and ``graph_cut`` make fewer
   errors than LocPMAP, which is best with weights that were :doc:`learned for it <plot_5_consistent_learning>`.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import horse
from skimage.transform import resize

import locpmap as lp

truth = resize(horse().astype(float), (64, 80), anti_aliasing=True) < 0.5
sigma = 0.7
noisy = truth + sigma * np.random.default_rng(0).normal(size=truth.shape)

# %%
# The unary score is the log-likelihood ratio of the noise. Two neighbours with equal labels score 1.
unary = np.stack([np.zeros_like(noisy), (noisy - 0.5) / sigma**2], axis=-1)
potentials = lp.Potentials.grid(unary, 1.0)

known = lp.inference.DECODERS
others = [
    name
    for name in sorted(known, key=lambda name: known[name].has_probability)
    if name not in ("locpmap", "icm", "exact")
]
likely = {"start": "perturbed"}  # these unaries are informative without neighbours
decoders = {
    "locpmap": ("locpmap", likely),
    "locpmap, rows and columns": ("locpmap", {**likely, "blocks": "rows+columns"}),
    "icm": ("icm", {"start": "unary"}),
    **{name: (name, {}) for name in others},  # decoders without probabilities first
}
results = {title: lp.infer(potentials, name, seed=0, **options) for title, (name, options) in decoders.items()}

# %%
# ``exact`` raises an error: its tables do not fit into memory on a grid of this width.
try:
    lp.infer(potentials, "exact")
except lp.errors.TooLargeError as error:
    print(error)

# %%
# The title of each panel has the percentage of wrong pixels.
fig, axes = plt.subplots(4, 4, figsize=(9.2, 8))
for ax in axes.flat:
    ax.axis("off")
for ax, (title, image) in zip(axes.flat, {"true labels": truth, "noisy image": noisy}.items(), strict=False):
    ax.imshow(image, cmap="gray_r")
    ax.set_title(title)
for ax, (title, result) in zip(axes.flat[2:], results.items(), strict=False):
    ax.imshow(
        result.labels if result.probability is None else result.probability[..., 1], cmap="gray_r", vmin=0, vmax=1
    )
    ax.set_title(f"{title}\n{np.mean(result.labels != truth):.1%} wrong", fontsize=9)
axes[3, 3].text(0.5, 0.5, "exact:\ndoes not fit", ha="center", va="center", color="#7b8794")
plt.show()
