"""Block-wise ascent, compiled; see the reference for the definition.

A sweep skips blocks around which nothing changed since their last visit.  Cost of a visit: the number of joint
labellings times the block's sites and inner edges, or sites · L² for a forest (sites · L with Potts weights >= 0).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from locpmap.kernels.numba.climb_sites import perturb, random_label
from locpmap.kernels.numba.noise import gumbel_row
from locpmap.kernels.numba.scores import add_edge, best_label, pair_score
from locpmap.kernels.perturbation import PERTURBED, PLAIN, RANDOM
from locpmap.kernels.reference.climb_blocks import ROUNDING


@njit(nogil=True, cache=True, error_model="numpy")
def climb_blocks(model, plan, perturbation, start, given, max_sweeps, first_image, lo, hi, first_sample, labels):
    """Fill ``labels`` (hi - lo, S, R); returns the last sweep that changed anything, (hi - lo, R)."""
    n_sites, n_labels = model.unary.shape[1], model.unary.shape[2]
    n_samples = labels.shape[2]
    sweeps = np.zeros((hi - lo, n_samples), np.int32)
    longest, n_joint = largest(plan, n_labels)
    noisy = np.empty((n_sites, n_labels), model.unary.dtype)
    y = np.empty(n_sites, np.int32)
    local = np.empty((longest, n_labels))
    choice = np.empty((longest, n_labels), np.int32)
    new = np.empty(longest, np.int32)
    place = np.empty(n_sites, np.int32)  # position of a site within the block at hand
    extra = np.zeros(n_joint)
    dirty = np.empty(len(plan.joint), np.bool_)
    for n in range(lo, hi):
        for s in range(n_samples):
            image, sample = first_image + n, first_sample + s
            for i in range(n_sites):
                perturb(noisy[i], model.unary[n, i], perturbation, image, sample, model.site_id[i])
                if start == RANDOM:
                    y[i] = random_label(model.unary[n, i], perturbation, image, sample, model.site_id[i])
                elif start == PERTURBED:
                    y[i] = best_label(noisy[i], 0)
                else:
                    y[i] = given[n, i]
            dirty[:] = True
            for sweep in range(1, max_sweeps + 1):
                for b in range(len(dirty)):
                    if not dirty[b]:
                        continue
                    dirty[b] = False
                    sites = plan.site[plan.ptr[b] : plan.ptr[b + 1]]
                    first = plan.ptr[b]
                    for j in range(len(sites)):
                        place[sites[j]] = j
                    if plan.joint[b]:
                        fill_local(local, model, plan, b, n, model.unary[n], sites, y)
                        states = extra[: n_labels ** len(sites)]
                        if perturbation.scheme == PLAIN:
                            gumbel_row(states, perturbation.k0, perturbation.k1, image, sample, model.site_id[sites[0]])
                            states *= perturbation.amount
                        better = best_joint(local, model, plan, b, n, sites, place, states, y, new)
                    else:
                        fill_local(local, model, plan, b, n, noisy, sites, y)
                        better = best_forest(local, choice, model, plan, n, first, sites, y, new)
                    if not better:
                        continue
                    sweeps[n - lo, s] = sweep
                    for j in range(len(sites)):
                        if y[sites[j]] != new[j]:
                            y[sites[j]] = new[j]
                            mark(dirty, model, plan, sites[j])
                    dirty[b] = False
                if sweeps[n - lo, s] < sweep:
                    break
            for i in range(n_sites):
                labels[n - lo, i, s] = y[i]
    return sweeps


@njit(error_model="numpy")
def improves(new, old):
    """Whether a score is better by more than rounding; anything allowed is better than something forbidden."""
    return new > old + ROUNDING * (1 + abs(old)) if old > -np.inf else new > old


@njit(error_model="numpy")
def largest(plan, n_labels):
    """The sites of the longest block and the joint labellings of the largest enumerated one."""
    longest, n_joint = 1, 1
    for b in range(len(plan.joint)):
        length = plan.ptr[b + 1] - plan.ptr[b]
        longest = max(longest, length)
        if plan.joint[b]:
            n_joint = max(n_joint, n_labels**length)
    return longest, n_joint


@njit(error_model="numpy")
def mark(dirty, model, plan, site):
    """Every block, of every family, that holds the site or one of its neighbours has to be looked at again."""
    for f in range(len(plan.block_of)):
        dirty[plan.block_of[f, site]] = True
        for slot in range(model.indptr[site], model.indptr[site + 1]):
            dirty[plan.block_of[f, model.neighbour[slot]]] = True


@njit(error_model="numpy")
def family_of(plan, b, site):
    """The family whose block of this site is b."""
    for f in range(len(plan.block_of)):
        if plan.block_of[f, site] == b:
            return f
    return 0


@njit(error_model="numpy")
def fill_local(local, model, plan, b, n, unary, sites, y):
    """Unaries plus the pairwise scores against neighbours outside the block."""
    block_of = plan.block_of[family_of(plan, b, sites[0])]
    for j in range(len(sites)):
        i = sites[j]
        local[j] = unary[i]
        for slot in range(model.indptr[i], model.indptr[i + 1]):
            other = model.neighbour[slot]
            if block_of[other] != b:
                add_edge(local[j], model, n, model.edge[slot], model.end[slot], y[other])


@njit(error_model="numpy")
def oriented(model, n, slot, label, other):
    """The score on the edge at ``slot``, the list's owner holding ``label``."""
    if model.end[slot] == 0:
        return pair_score(model, n, model.edge[slot], label, other)
    return pair_score(model, n, model.edge[slot], other, label)


@njit(error_model="numpy")
def best_joint(local, model, plan, b, n, sites, place, extra, y, new):
    """The best labelling by enumeration into ``new``; False where the current one is as good."""
    n_labels, length = local.shape[1], len(sites)
    block_of = plan.block_of[family_of(plan, b, sites[0])]
    trial = np.zeros(length, np.int32)
    best, top, current = 0, -np.inf, -np.inf
    for state in range(len(extra)):
        total = extra[state]
        same = True
        for j in range(length):
            i = sites[j]
            total += local[j, trial[j]]
            same &= trial[j] == y[i]
            for slot in range(model.indptr[i], model.indptr[i + 1]):
                other = model.neighbour[slot]
                if block_of[other] == b and place[other] < j:
                    total += oriented(model, n, slot, trial[j], trial[place[other]])
        if same:
            current = total
        if total > top:
            best, top = state, total
        for j in range(length - 1, -1, -1):  # count up, last site fastest
            trial[j] += 1
            if trial[j] < n_labels:
                break
            trial[j] = 0
    for j in range(length - 1, -1, -1):
        new[j] = best % n_labels
        best //= n_labels
    return improves(top, current)


@njit(error_model="numpy")
def best_forest(local, choice, model, plan, n, first, sites, y, new):
    """The best labelling of a forest into ``new``; False where the current one is as good."""
    n_labels, length = local.shape[1], len(sites)
    current = 0.0
    for j in range(length):
        current += local[j, y[sites[j]]]
        slot = plan.parent_slot[first + j]
        if slot >= 0:
            current += oriented(model, n, slot, y[sites[j]], y[model.neighbour[slot]])
    top = 0.0
    for j in range(length - 1, -1, -1):
        own = local[j]
        crest = best_label(own, 0)
        slot, parent = plan.parent_slot[first + j], plan.parent[first + j]
        if slot < 0:
            top += own[crest]
            new[j] = crest
            continue
        weight = oriented(model, n, slot, 0, 0)
        if model.potts and weight >= 0:  # only the best label and the parent's own can win
            for k in range(n_labels):
                stay = own[k] + weight
                choice[j, k] = k if stay > own[crest] or (stay == own[crest] and k < crest) else crest
                local[parent, k] += max(stay, own[crest])
            continue
        for k in range(n_labels):
            pick, value = 0, own[0] + oriented(model, n, slot, 0, k)
            for a in range(1, n_labels):
                trial = own[a] + oriented(model, n, slot, a, k)
                if trial > value:
                    pick, value = a, trial
            choice[j, k] = pick
            local[parent, k] += value
    for j in range(length):
        if plan.parent[first + j] >= 0:
            new[j] = choice[j, new[plan.parent[first + j]]]
    return improves(top, current)
