"""Block coordinate ascent: every block in turn takes its best joint labelling given all other labels.

Sweeps repeat until no label changes.  An enumerated block has one noise value per joint labelling, the case of the
paper's exactness theorem.  It is keyed by the block's first site and the number of the labelling, last site fastest.
In a forest the noise is added to the unaries of the sites.
"""

from itertools import product

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import PLAIN, Perturbation
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.climb_sites import begin
from locpmap.kernels.reference.scores import edge_tables

# A block changes only if the score improves by more than this, relative to the size of the scores (rounding).
ROUNDING = 1e-9


def climb_blocks(
    model: Model,
    plan: BlockPlan,
    perturbation: Perturbation,
    start: int,
    given: Array,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: Array,
) -> Array:
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a label, (hi - lo, R)."""
    sweeps = np.zeros((hi - lo, labels.shape[2]), np.int32)
    for n in range(lo, hi):
        for s in range(labels.shape[2]):
            image, sample = first_image + n, first_sample + s
            noisy, y = begin(model, n, perturbation, start, given, image, sample)
            for sweep in range(1, max_sweeps + 1):
                for b in range(len(plan.joint)):
                    if improve(model, n, noisy, plan, b, y, perturbation, image, sample):
                        sweeps[n - lo, s] = sweep
                if sweeps[n - lo, s] < sweep:
                    break
            labels[n - lo, :, s] = y
    return sweeps


def improve(
    model: Model,
    n: int,
    noisy: Array,
    plan: BlockPlan,
    b: int,
    y: Array,
    perturbation: Perturbation,
    image: int,
    sample: int,
) -> bool:
    """Assign block b its best labelling; return whether that changed ``y``."""
    sites = plan.site[plan.ptr[b] : plan.ptr[b + 1]]
    inside = {int(site): j for j, site in enumerate(sites)}
    local = np.array((model.unary[n] if plan.joint[b] else noisy)[sites], np.float64)
    pairs = []  # (j, k, table) for edges inside the block
    for j, site in enumerate(sites):
        for slot in range(model.indptr[site], model.indptr[site + 1]):
            table = edge_tables(model, n, model.edge[slot : slot + 1])[0]
            table = table if model.end[slot] == 0 else table.T
            other = int(model.neighbour[slot])
            if other not in inside:
                local[j] += table[:, y[other]]
            elif inside[other] < j:
                pairs.append((j, inside[other], table))
    if plan.joint[b]:
        extra = np.zeros(local.shape[1] ** len(sites))
        if perturbation.scheme == PLAIN:
            key = (int(perturbation.k0), int(perturbation.k1))
            extra = perturbation.amount * noise.gumbel(key, image, sample, model.site_id[sites[:1]], len(extra))[0]
        best = best_joint(local, pairs, extra)
    else:
        extra = None
        best = best_forest(local, pairs, plan.parent[plan.ptr[b] : plan.ptr[b + 1]])
    old, new = score(local, pairs, extra, y[sites]), score(local, pairs, extra, best)
    if not improves(new, old):
        return False
    y[sites] = best
    return True


def improves(new: float, old: float) -> bool:
    """Return whether a score is better by more than rounding; any finite score is better than -inf."""
    return new > old + ROUNDING * (1 + abs(old)) if old > -np.inf else new > old


def score(local: Array, pairs: list[tuple[int, int, Array]], extra: Array | None, labels: Array) -> float:
    """Return the score of a labelling of the block."""
    total = local[np.arange(len(local)), labels].sum() + sum(table[labels[j], labels[k]] for j, k, table in pairs)
    if extra is not None:
        total += extra[np.ravel_multi_index(tuple(labels), (local.shape[1],) * len(local))]
    return float(total)


def best_joint(local: Array, pairs: list[tuple[int, int, Array]], extra: Array) -> Array:
    """Return the best joint labelling by enumeration."""
    labellings = np.array(list(product(range(local.shape[1]), repeat=len(local))))
    totals = [score(local, pairs, None, labels) + extra[m] for m, labels in enumerate(labellings)]
    return labellings[int(np.argmax(totals))]


def best_forest(local: Array, pairs: list[tuple[int, int, Array]], parent: Array) -> Array:
    """Return the best joint labelling of a forest by dynamic programming from the leaves to the roots and back."""
    up = {j: table for j, _, table in pairs}
    belief = local.copy()
    choice = np.zeros(local.shape, np.int64)
    for j in range(len(local) - 1, -1, -1):
        if parent[j] >= 0:
            message = belief[j][:, None] + up[j]
            choice[j] = message.argmax(axis=0)
            belief[parent[j]] += message.max(axis=0)
    labels = np.zeros(len(local), np.int64)
    for j in range(len(local)):
        labels[j] = choice[j, labels[parent[j]]] if parent[j] >= 0 else belief[j].argmax()
    return labels
