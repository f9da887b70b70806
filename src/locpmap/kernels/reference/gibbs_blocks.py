"""One sweep of Gibbs sampling by blocks: draw all labels of a block jointly, given all labels outside it.

Sums go forwards, draws backwards.  A table over the *frontier* of a block (see `DrawPlan`) holds, for every labelling
of the frontier, the sum of ``exp(score)`` over the labels of sites that were removed from it.  Adding a site
multiplies the table by the site's terms; removing a site sums over its labels.  The draws go through the removals in
reverse order: all other sites of the table have labels by then, so that its entries are the weights of the site's
labels.  Uniforms are those of `reference.gibbs`: one per (image, sweep, site).
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.block_plan import DrawPlan
from locpmap.kernels.model import CONDITIONAL, VOTES, Model
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.gibbs import conditional, draw
from locpmap.kernels.reference.scores import edge_tables


def gibbs_blocks(
    model: Model,
    plan: DrawPlan,
    labels: Array,
    totals: Array,
    adds: int,
    temperature: float,
    linear: bool,
    k0: int,
    k1: int,
    sweep: int,
    first_image: int,
    lo: int,
    hi: int,
) -> None:
    """Update the labels (N, S) of images lo..hi, once at every site, by the blocks of the sweep's family.

    ``adds`` selects what is added to ``totals`` (N, S, L), as in `reference.gibbs`: 1 at the drawn label, or the
    probabilities from which it was drawn.  Blocks without any possible labelling do not change.  ``linear`` allows
    tables of exp(score) where no entry can underflow; the reference always uses logarithms.
    """
    family = sweep % (len(plan.family_ptr) - 1)
    for n in range(lo, hi):
        for b in range(plan.family_ptr[family], plan.family_ptr[family + 1]):
            _draw_block(model, plan, b, n, labels[n], temperature, (k0, k1), sweep, first_image + n, adds, totals)


def _draw_block(
    model: Model,
    plan: DrawPlan,
    b: int,
    n: int,
    y: Array,
    temperature: float,
    key: noise.Key,
    sweep: int,
    image: int,
    adds: int,
    totals: Array,
) -> None:
    mine = slice(plan.ptr[b], plan.ptr[b + 1])
    operations = list(zip(plan.site[mine].tolist(), plan.removed[mine].tolist(), strict=True))
    inside = {site for site, _ in operations}
    frontier: list[int] = []
    table = np.zeros(())  # logarithms, one axis per site of the frontier
    removals = []  # (site, the other sites, table with the site's axis last)
    for site, removed in operations:
        if removed < 0:
            table = table[..., None] + _terms(model, n, site, y, inside, frontier) / temperature
            frontier.append(site)
        else:
            frontier.pop(removed)
            removals.append((site, list(frontier), np.moveaxis(table, removed, -1)))
            table = np.logaddexp.reduce(table, axis=removed)
    possible = bool(table > -np.inf)
    for site, others, weights in reversed(removals):
        p = np.eye(model.unary.shape[2])[y[site]][None]
        if possible:
            p = conditional(weights[tuple(y[others])][None], 1.0)
            word = noise.words(key, noise.CHAIN, image, sweep, model.site_id[[site]])[0]
            y[site] = draw(p, noise.uniform(word))[0]
        if adds == CONDITIONAL:
            totals[n, site] += p[0]
        elif adds == VOTES:
            totals[n, site, y[site]] += 1


def _terms(model: Model, n: int, site: int, y: Array, inside: set[int], frontier: list[int]) -> Array:
    """Return the score of a site's labels, last axis, with labels outside the block and those of the frontier."""
    terms = np.array(model.unary[n, site], np.float64).reshape((1,) * len(frontier) + (-1,))
    for slot in range(model.indptr[site], model.indptr[site + 1]):
        table = edge_tables(model, n, model.edge[slot : slot + 1])[0]
        table = table if model.end[slot] == 1 else table.T  # (label of the neighbour, label of the site)
        other = int(model.neighbour[slot])
        if other not in inside:
            terms = terms + table[y[other]]
        elif other in frontier:
            shape = [1] * len(frontier) + [len(table)]
            shape[frontier.index(other)] = len(table)
            terms = terms + table.reshape(shape)
    return terms
