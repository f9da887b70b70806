r"""
How many samples are enough?
============================

Fifty samples are enough for labels. The error of probabilities halves with four times as many.

.. admonition:: What to see

   ``probability="conditional"`` averages :math:`p(y_i \mid \text{neighbours})` over the samples instead of
   counting votes. Its error is smaller, so it needs fewer samples for the same accuracy. Draw more than fifty
   samples where probabilities themselves are reported.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import binary_blobs

import locpmap as lp

truth = binary_blobs(64, blob_size_fraction=0.25, volume_fraction=0.4, rng=1)
noisy = truth + np.random.default_rng(0).normal(size=truth.shape)
potentials = lp.Potentials.grid(np.stack([np.zeros_like(noisy), noisy - 0.5], axis=-1), 0.8)

# %%
# 10,000 samples approximate the limit of infinitely many. Each smaller number is tried with 8 seeds.
limit = {
    kind: lp.infer(potentials, "locpmap", probability=kind, n_samples=10_000, seed=99)
    for kind in ("votes", "conditional")
}
counts = [1, 3, 10, 30, 100, 300, 1000]
error: dict[str, list[float]] = {kind: [] for kind in limit}
changed: dict[str, list[float]] = {kind: [] for kind in limit}
for kind, end in limit.items():
    for n_samples in counts:
        tries = [lp.infer(potentials, "locpmap", probability=kind, n_samples=n_samples, seed=s) for s in range(8)]
        error[kind].append(np.sqrt(np.mean([(t.probability - end.probability)[..., 1] ** 2 for t in tries])))
        changed[kind].append(np.mean([t.labels != end.labels for t in tries]))

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for kind in error:
    left.loglog(counts, error[kind], "o-", label=kind)
    right.loglog(counts, changed[kind], "o-", label=kind)
left.loglog(counts, 0.5 / np.sqrt(counts), color="#9aa5b1", ls=":", label=r"$\propto 1/\sqrt{M}$")
left.set(xlabel="samples M", ylabel="root mean square error", title="error of the probability")
right.set(xlabel="samples M", ylabel="fraction of pixels", title="labels that differ from the limit")
left.legend()
plt.show()

# %%
# Probabilities from 3, 50 and 10,000 samples.
fig, axes = plt.subplots(1, 4, figsize=(9.2, 2.6))
axes[0].imshow(noisy, cmap="gray_r")
axes[0].set_title("noisy image")
few = {m: lp.infer(potentials, "locpmap", n_samples=m, seed=0) for m in (3, 50)}
for ax, (m, result) in zip(axes[1:], {**few, 10_000: limit["conditional"]}.items(), strict=True):
    ax.imshow(result.probability[..., 1], cmap="viridis", vmin=0, vmax=1)
    ax.set_title(f"probability, M = {m:,}")
for ax in axes:
    ax.axis("off")
plt.show()
