"""
Error bars on an area
=====================

LocPMAP's samples are complete label maps, so every quantity of a label map has a distribution.
``lp.measure`` computes it, here for the area of an object.

.. admonition:: What to see

   Errors of neighbouring pixels are correlated. Intervals from independent pixels are far too narrow and
   often miss the true area (red). Intervals from complete samples are wider, and their coverage is close to the nominal
   90 %; the counts are in the titles.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import binary_blobs

import locpmap as lp

rng = np.random.default_rng(0)
shares = rng.uniform(0.3, 0.5, size=56)
maps = np.stack([binary_blobs(36, 0.3, volume_fraction=share, rng=n) for n, share in enumerate(shares)]).astype(int)
seen = maps + 0.8 * rng.normal(size=maps.shape)

# %%
# Fit a CRF by consistent learning to the first 24 images. The other 32 are for testing.
crf = lp.CRF(n_labels=2)
fast = lp.learning.FitOptions(batch_size=4, max_iterations=6, standard_errors=False)  # for a fast example only
crf.fit(seen[:24], maps[:24], "consistent", seed=0, options=fast)
seen, maps = seen[24:], maps[24:]
result = crf.infer(seen, "locpmap", n_samples=200, keep_samples=True, seed=0)

# %%
# The area of label 1 in 200 samples of each image, and in 200 maps of independent pixels with the same probabilities.
area = lp.measure(result, "area", names=("ground", "blobs"))
low, high = (end[:, 1] for end in area.interval(0.9))

coins = rng.random((200, *maps.shape)) < result.probability[..., 1]
low_coins, high_coins = np.quantile(coins.sum(axis=(2, 3)), [0.05, 0.95], axis=0)

# %%
truth = maps.sum(axis=(1, 2))
order = np.argsort(truth)
fig, axes = plt.subplots(1, 2, figsize=(9.4, 3.9), sharey=True)
for ax, title, ends, colour in (
    (axes[0], "complete samples", (low, high), "#0072B2"),
    (axes[1], "independent pixels", (low_coins, high_coins), "#E69F00"),
):
    inside = (ends[0] <= truth) & (truth <= ends[1])
    ax.vlines(range(len(truth)), ends[0][order], ends[1][order], color=colour, lw=4, alpha=0.6)
    ax.scatter(range(len(truth)), truth[order], s=13, color=np.where(inside[order], "#1f2933", "#c81e1e"), zorder=3)
    ax.set(title=f"{title}: {inside.sum()} of {len(truth)} covered", xlabel="image, by true area", xticks=[])
axes[0].set_ylabel("pixels; bars are 90 % intervals")
plt.show()

# %%
# One image: the noisy input, three samples, and the areas of all samples.
one = 4
fig, axes = plt.subplots(1, 5, figsize=(9.6, 2.3), width_ratios=(1, 1, 1, 1, 1.6))
axes[0].imshow(seen[one], cmap="gray_r")
axes[0].set_title("noisy image")
for n, ax in enumerate(axes[1:4]):
    ax.imshow(result.samples[n, one], cmap="gray_r")
    ax.set_title(f"sample {n + 1}")
for ax in axes[:4]:
    ax.axis("off")
axes[4].hist(area.values[:, one, 1], bins=20, color="#0072B2", alpha=0.6)
axes[4].axvline(truth[one], color="#1f2933", label="true area")
axes[4].set(title="area in 200 samples", xlabel="pixels", yticks=[])
axes[4].legend(fontsize=8)
plt.show()
