"""Block coordinate ascent on lines, with independent Gumbel noise on every joint labelling of a line.

The noise of the L^n labellings y of a line is drawn only as far as it matters.  As *clocks* ``T(y) = exp(-noise)``, of
distribution Exp(1), the best labelling given the other lines is that of least ``T(y) / p(y)``, where p is the line's
conditional distribution.  The least value is called s.

- *First visit*: candidates Y, drawn from p by sums along the line, arrive after Exp(1) waits.  The first one is best.
- *Later visit*, with another p: visit j has revealed one clock, and that all others exceed ``s_j p_j(y)``.  Because
  clocks have no memory, candidates arrive as before; (s, Y) counts if ``s p(Y) > s_j p_j(Y)`` for all j and Y is not
  revealed.  It is the best, unless ``T(y) / p(y) < s`` for a revealed y.

For every p that does not depend on the line's clocks, s has distribution Exp(1), so a visit draws one candidate on
average.  A line is visited again only after a label next to it has changed.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.climb_sites import begin
from locpmap.kernels.reference.gibbs import conditional, draw
from locpmap.kernels.reference.scores import edge_tables

MAX_CANDIDATES = 2**16  # of a line and sample, limited by the noise counter; then it keeps its labels


class Line:
    """The clocks of one line that its visits have revealed."""

    def __init__(self) -> None:
        self.visits: list[tuple[float, Array, float]] = []  # log s, scores of the sites (n, L) and log partition
        self.revealed: list[tuple[Array, float]] = []  # labels and log clock
        self.n_candidates = 0

    def best(self, local: Array, pairs: Array, words: Callable[[int], Array]) -> Array | None:
        """Return the best labelling, or None if none is possible.

        ``local`` (n, L) and ``pairs`` (n - 1, L, L) are scores divided by the amount of noise.  ``words`` returns the
        random words (4, n) of a candidate: word 0 draws its labels, word 1 of the first site its wait.
        """
        beliefs, log_z = sums(local, pairs)
        if log_z == -np.inf:
            return None
        known = [log_clock - (score(local, pairs, y) - log_z) for y, log_clock in self.revealed]
        log_s_known = min(known, default=np.inf)
        s = 0.0
        while self.n_candidates < MAX_CANDIDATES:
            mine = words(self.n_candidates)
            self.n_candidates += 1
            s -= float(np.log(noise.uniform(mine[1, 0])))
            if np.log(s) >= log_s_known:
                break
            y = draw_line(beliefs, pairs, noise.uniform(mine[0]))
            log_clock = np.log(s) + score(local, pairs, y) - log_z
            earlier = (log_t + score(then, pairs, y) - log_then for log_t, then, log_then in self.visits)
            if all(log_clock > bound for bound in earlier) and not any((y == z).all() for z, _ in self.revealed):
                self.visits.append((float(np.log(s)), local, log_z))
                self.revealed.append((y, log_clock))
                return y
        if not known:
            return None
        self.visits.append((log_s_known, local, log_z))
        return self.revealed[int(np.argmin(known))][0]


def climb_clocks(
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
    key = (int(perturbation.k0), int(perturbation.k1))
    for n in range(lo, hi):
        for s in range(labels.shape[2]):
            image, sample = first_image + n, first_sample + s
            _, y = begin(model, n, perturbation, start, given, image, sample)
            lines, dirty = [Line() for _ in plan.joint], np.ones(len(plan.joint), bool)
            for sweep in range(1, max_sweeps + 1):
                for b, line in enumerate(lines):
                    if not dirty[b]:
                        continue
                    dirty[b] = False
                    sites = plan.site[plan.ptr[b] : plan.ptr[b + 1]]
                    local, pairs = terms(model, n, sites, y)
                    words = partial(noise.words, key, noise.CLOCK, image, sample, model.site_id[sites])
                    best = line.best(local / perturbation.amount, pairs / perturbation.amount, words)
                    if best is None or (best == y[sites]).all():
                        continue
                    sweeps[n - lo, s] = sweep
                    for site in sites[best != y[sites]]:
                        near = model.neighbour[model.indptr[site] : model.indptr[site + 1]]
                        dirty[plan.block_of[0, near]] = True
                    y[sites] = best
                    dirty[b] = False
                if sweeps[n - lo, s] < sweep:
                    break
            labels[n - lo, :, s] = y
    return sweeps


def terms(model: Model, n: int, sites: Array, y: Array) -> tuple[Array, Array]:
    """Return scores of a line's sites (n, L) given labels outside it, and of pairs of neighbours (n - 1, L, L)."""
    local = np.array(model.unary[n, sites], np.float64)
    pairs = np.zeros((len(sites) - 1, local.shape[1], local.shape[1]))  # (label before, label)
    place = {int(site): j for j, site in enumerate(sites)}
    for site, j in place.items():
        for slot in range(model.indptr[site], model.indptr[site + 1]):
            table = edge_tables(model, n, model.edge[slot : slot + 1])[0]
            table = table if model.end[slot] == 1 else table.T  # (label of the neighbour, label of the site)
            other = int(model.neighbour[slot])
            if other not in place:
                local[j] += table[y[other]]
            elif place[other] == j - 1:
                pairs[j - 1] = table
    return local, pairs


def sums(local: Array, pairs: Array) -> tuple[Array, float]:
    """Return the log sums over all later sites for each label of a site, (n, L), and the log partition."""
    beliefs = local.copy()
    for j in range(len(local) - 1, 0, -1):
        beliefs[j - 1] += np.logaddexp.reduce(beliefs[j] + pairs[j - 1], axis=1)
    return beliefs, float(np.logaddexp.reduce(beliefs[0]))


def draw_line(beliefs: Array, pairs: Array, u: Array) -> Array:
    """Draw the labels of a line from first to last, at one uniform per site."""
    y = np.zeros(len(beliefs), np.int64)
    for j in range(len(y)):
        scores = beliefs[j] + (pairs[j - 1, y[j - 1]] if j else 0.0)
        y[j] = draw(conditional(scores[None], 1.0), u[j : j + 1])[0]
    return y


def score(local: Array, pairs: Array, y: Array) -> float:
    """Return the score of a line's labels."""
    here = np.arange(len(y))
    return float(local[here, y].sum() + pairs[here[:-1], y[:-1], y[1:]].sum())
