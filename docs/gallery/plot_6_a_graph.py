"""
A graph instead of a grid
=========================

``lp.Potentials.graph`` takes any graph. Here sites are points in the plane, and edges join nearby points.

.. admonition:: What to see

   Many points are labelled wrongly by their own scores. With the graph, three clean arms appear. The remaining
   uncertainty is along the borders of the arms and in the centre, where they meet.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from scipy.spatial import Delaunay

import locpmap as lp

COLOURS = ListedColormap(["#0072B2", "#E69F00", "#009E73"])

rng = np.random.default_rng(3)
radius, angle = np.sqrt(rng.random(1500)), 2 * np.pi * rng.random(1500)
points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)  # (S, 2), evenly over a disc
truth = ((angle + 4 * radius) // (2 * np.pi / 3) % 3).astype(int)  # three arms of a spiral
unary = 1.3 * np.eye(3)[truth] + rng.normal(size=(len(points), 3))  # a weak classifier's scores

# %%
# Edges are those of the Delaunay triangulation. Shorter edges have larger Potts weights.
triangles = Delaunay(points).simplices
edges = np.unique(np.sort(triangles[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2)), axis=0)
length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
weights = 1.2 * np.exp(-length / 0.1)

potentials = lp.Potentials.graph(unary, edges, weights)
result = lp.infer(potentials, "locpmap", n_samples=200, seed=0)

# %%
fig, axes = plt.subplots(1, 3, figsize=(9.6, 3.4))
answers = {"by itself": unary.argmax(axis=1), "with its neighbours": result.labels}
for ax, (title, labels) in zip(axes, answers.items(), strict=False):
    ax.add_collection(LineCollection(points[edges], colors="#cbd2d9", linewidths=0.4))
    ax.scatter(*points.T, c=labels, cmap=COLOURS, s=11, zorder=2)
    ax.set_title(f"each point {title}: {np.mean(labels != truth):.0%} wrong")
doubt = axes[2].tripcolor(*points.T, triangles, result.entropy, shading="gouraud", cmap="magma")
axes[2].set_title("entropy of the labels")
fig.colorbar(doubt, ax=axes[2], shrink=0.8)
for ax in axes:
    ax.set_aspect("equal")
    ax.axis("off")
plt.show()
