"""
Samples of whole label maps
===========================

Three models of one photograph with the same scores. They differ in the errors that pixels share, and so in how their
samples look.

.. admonition:: What to see

   Independent pixels (first row) give specks, and all samples have nearly the same areas. One error per label that all
   pixels share (second row) changes the areas in the whole image, and the specks remain. With error fields and coupling
   (third row) the specks are gone, and the samples differ in whole regions: parts of the table become crockery, and the
   outline of the coffee moves.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from scipy.ndimage import gaussian_filter
from skimage.data import coffee
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

import locpmap as lp
from locpmap.refining.weights import Weights

COLOURS = ListedColormap(["#7a6a58", "#D55E00", "#f3ead8", "#E69F00", "#56B4E9"])

# %%
# Scores of a photograph at an eighth of its size, like those of a network. Here they come from a classifier of colours
# and positions that was fitted to a few marked rectangles. It confuses things of similar colour.
photo = coffee()
marked = {  # rows and columns of rectangles
    "background": [np.s_[20:60, 450:600], np.s_[150:390, 500:600], np.s_[200:390, :70], np.s_[:130, :100]],
    "crockery": [np.s_[100:330, 110:165], np.s_[150:230, 420:460], np.s_[300:350, 200:320], np.s_[220:240, 280:340]],
    "china": [np.s_[30:80, 240:380], np.s_[195:205, 250:340], np.s_[80:150, 178:192]],
    "coffee": [np.s_[105:185, 235:350]],
    "metal": [np.s_[260:320, 335:395], np.s_[75:95, 403:418]],
}
near = gaussian_filter(photo / 255, (3, 3, 0))
texture = gaussian_filter(((photo / 255 - near) ** 2).mean(axis=-1), 5)
rows, columns = np.mgrid[:400, :600] / 100
features = np.dstack([np.log(near + 0.05), np.log(texture + 1e-4), rows, columns])
pixels = [np.concatenate([features[part].reshape(-1, 6) for part in parts]) for parts in marked.values()]
known = np.repeat(np.arange(5), [len(part) for part in pixels])
classifier = QuadraticDiscriminantAnalysis(priors=[0.2] * 5, reg_param=0.1).fit(np.concatenate(pixels), known)
logits = classifier.decision_function(features[4::8, 4::8].reshape(-1, 6)).reshape(50, 75, 5)

# %%
# The sizes of the errors and the coupling are set by hand for this picture. Choose them on held-out images in practice.
alone = lp.Refiner(Weights([8.0], [1.0]))
coupled = lp.Refiner(
    Weights([8.0], [1.0], pairwise=[[[0.5, 5.0]] * 2], sizes=[[0.1, 0.2, 0.5, 1.0, 1.0]], shared=0.5, noise=0.2)
)
sampler = lp.LocPMAP(n_samples=4, start="perturbed")
offset = lp.LocPMAP(n_samples=4, start="perturbed", fields=lp.ErrorFields(shared=1.0))
models = {
    "independent pixels": (alone, sampler),
    "one shared error": (alone, offset),
    "error fields": (coupled, sampler),
}
samples = {
    title: refiner.refine(photo, logits, decoder=decoder, keep_samples=True, seed=1).samples
    for title, (refiner, decoder) in models.items()
}

# %%
fig, axes = plt.subplots(3, 5, figsize=(9.6, 4.8))
for ax in axes.flat:
    ax.axis("off")
result = coupled.refine(photo, logits, seed=1)
axes[0, 0].imshow(photo)
axes[0, 0].set_title("photograph")
axes[1, 0].imshow(logits.argmax(axis=-1), cmap=COLOURS, vmin=0, vmax=4)
axes[1, 0].set_title("scores: best label")
axes[2, 0].imshow(result.labels, cmap=COLOURS, vmin=0, vmax=4)
axes[2, 0].set_title("refined labels")
for row, (title, maps) in zip(axes, samples.items(), strict=True):
    for n, (ax, labels) in enumerate(zip(row[1:], maps, strict=True)):
        ax.imshow(labels, cmap=COLOURS, vmin=0, vmax=4)
        ax.set_title(f"{title}:" if n == 0 else f"sample {n + 1}")
handles = [Patch(color=COLOURS(k), label=name) for k, name in enumerate(marked)]
fig.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
plt.show()
