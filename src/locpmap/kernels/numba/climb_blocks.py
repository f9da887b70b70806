"""Numba version of `reference.climb_blocks`: block coordinate ascent.

A sweep skips blocks if no label in or next to them changed since the last visit.  A visit of an enumerated block costs
its joint labellings times its sites and inner edges; of a forest, sites · L² (sites · L with Potts weights >= 0).
"""

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.numba.noise import pick, site_words, uniform
from locpmap.kernels.numba.perturbing import perturb
from locpmap.kernels.perturbation import PLAIN
from locpmap.kernels.reference import climb_blocks as reference
from locpmap.kernels.reference import noise as streams

_PLAIN = streams.PLAIN
improves = njit(error_model="numpy")(reference.improves)


@kernel
def climb_blocks(model, plan, perturbation, start, given, max_sweeps, first_image, lo, hi, first_sample, labels):
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a label, (hi - lo, R)."""
    unary, site_id, potts, features, tables = model.unary, model.site_id, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    ptr, block_sites, joint, block_of, family = plan.ptr, plan.site, plan.joint, plan.block_of, plan.family
    parent, parent_slot = plan.parent, plan.parent_slot
    n_sites, n_labels, n_samples = unary.shape[1], unary.shape[2], labels.shape[2]
    longest, most_joint = 1, 0  # sites of the largest block, and of the largest enumerated one
    for b in range(len(joint)):
        longest = max(longest, ptr[b + 1] - ptr[b])
        most_joint = max(most_joint, ptr[b + 1] - ptr[b]) if joint[b] else most_joint
    sweeps = np.zeros((hi - lo, n_samples), np.int32)
    noisy = np.empty((n_sites, n_labels), unary.dtype)
    y = np.empty(n_sites, np.int32)
    place = np.empty(n_sites, np.int32)  # position of a site within the current block
    local = np.empty((longest, n_labels))
    new = np.empty(longest, np.int32)
    choice = np.empty((longest, n_labels), np.int32)
    most_inner = most_joint * most_joint // 2
    inner = np.empty((most_inner, n_labels, n_labels))  # tables of the edges inside an enumerated block
    ends_of = np.empty((most_inner, 2), np.int32)
    extra = np.zeros(n_labels**most_joint)
    dirty = np.empty(len(joint), np.bool_)
    for n in range(lo, hi):
        for s in range(n_samples):
            image, sample = first_image + n, first_sample + s
            perturb(noisy, y, unary, n, perturbation, start, given, image, sample, site_id)
            dirty[:] = True
            for sweep in range(1, max_sweeps + 1):
                for b in range(len(dirty)):
                    if not dirty[b]:
                        continue
                    dirty[b] = False
                    first, length, f = ptr[b], ptr[b + 1] - ptr[b], family[b]
                    n_inner = np.int64(0)  # with a literal 0, `best_joint` would be compiled twice
                    for j in range(length):
                        i = block_sites[first + j]
                        place[i] = j
                        for k in range(n_labels):
                            local[j, k] = unary[n, i, k] if joint[b] else noisy[i, k]
                        for slot in range(indptr[i], indptr[i + 1]):
                            edge, other = edges[slot], neighbour[slot]
                            if block_of[f, other] != b:
                                if potts:
                                    local[j, y[other]] += potts_weight(features, n, edge)
                                    continue
                                for k in range(n_labels):
                                    local[j, k] += table_score(features, tables, n, edge, ends[slot], k, y[other])
                            elif joint[b] and other < i:  # sites of an enumerated block are sorted
                                ends_of[n_inner, 0], ends_of[n_inner, 1] = j, place[other]
                                for k in range(n_labels):
                                    for m in range(n_labels):
                                        inner[n_inner, k, m] = table_score(features, tables, n, edge, ends[slot], k, m)
                                n_inner += 1
                    if joint[b]:
                        n_states = n_labels**length
                        if perturbation.scheme == PLAIN:
                            joint_noise(extra, n_states, perturbation, image, sample, site_id[block_sites[first]])
                        inside = (inner, ends_of, n_inner)
                        better = best_joint(local, inside, extra, n_states, block_sites, first, length, y, new)
                    else:
                        pairwise = (potts, features, tables, edges, ends, n)
                        tree = (parent, parent_slot, block_sites, first, length)
                        better = best_forest(local, choice, pairwise, tree, y, new)
                    if not better:
                        continue
                    sweeps[n - lo, s] = sweep
                    for j in range(length):
                        i = block_sites[first + j]
                        if y[i] == new[j]:
                            continue
                        y[i] = new[j]
                        # Mark every block, of every family, that contains the site or a neighbour.
                        for g in range(len(block_of)):
                            dirty[block_of[g, i]] = True
                            for slot in range(indptr[i], indptr[i + 1]):
                                dirty[block_of[g, neighbour[slot]]] = True
                    dirty[b] = False
                if sweeps[n - lo, s] < sweep:
                    break
            for i in range(n_sites):
                labels[n - lo, i, s] = y[i]
    return sweeps


@inner
def joint_noise(extra, n_states, perturbation, image, sample, site):
    """Fill ``extra`` with the noise of a block's joint labellings."""
    _, amount, k0, k1 = perturbation
    for group in range((n_states + 3) // 4):
        words = site_words(k0, k1, _PLAIN, image, sample, site, group)
        for j in range(min(4, n_states - 4 * group)):
            extra[4 * group + j] = -amount * math.log(-math.log(uniform(pick(words, j))))


@inner
def best_joint(local, inside, extra, n_states, block_sites, first, length, y, new):
    """Write the best labelling by enumeration to ``new``; return whether it improves on the current one."""
    inner, ends_of, n_inner = inside
    n_labels = local.shape[1]
    for j in range(length):
        new[j] = 0
    current_state = 0
    for j in range(length):
        current_state = current_state * n_labels + y[block_sites[first + j]]
    best, top, current = 0, -np.inf, -np.inf
    for state in range(n_states):
        total = extra[state]
        for j in range(length):
            total += local[j, new[j]]
        for m in range(n_inner):
            total += inner[m, new[ends_of[m, 0]], new[ends_of[m, 1]]]
        if state == current_state:
            current = total
        if total > top:
            best, top = state, total
        for j in range(length - 1, -1, -1):  # next labelling; the last site changes fastest
            new[j] += 1
            if new[j] < n_labels:
                break
            new[j] = 0
    for j in range(length - 1, -1, -1):
        new[j] = best % n_labels
        best //= n_labels
    return improves(top, current)


@inner
def best_forest(local, choice, pairwise, tree, y, new):
    """Write the best labelling of a forest to ``new``; return whether it improves on the current one."""
    potts, features, tables, edges, ends, n = pairwise
    parent, parent_slot, block_sites, first, length = tree
    n_labels = local.shape[1]
    current, top = 0.0, 0.0
    for j in range(length):
        here = y[block_sites[first + j]]
        current += local[j, here]
        slot = parent_slot[first + j]
        if slot >= 0:
            there = y[block_sites[first + parent[first + j]]]
            current += table_score(features, tables, n, edges[slot], ends[slot], here, there)
    for j in range(length - 1, -1, -1):
        crest = 0  # the best label of a site without its parent
        for k in range(1, n_labels):
            crest = k if local[j, k] > local[j, crest] else crest
        slot, up = parent_slot[first + j], parent[first + j]
        if slot < 0:
            top += local[j, crest]
            new[j] = crest
            continue
        edge, end = edges[slot], ends[slot]
        weight = potts_weight(features, n, edge)
        for k in range(n_labels):
            if potts and weight >= 0:  # only the crest and the parent's label can be best
                stay = local[j, k] + weight
                picked = k if stay > local[j, crest] or (stay == local[j, crest] and k < crest) else crest
                value = max(stay, local[j, crest])
            else:
                picked, value = 0, local[j, 0] + table_score(features, tables, n, edge, end, 0, k)
                for a in range(1, n_labels):
                    trial = local[j, a] + table_score(features, tables, n, edge, end, a, k)
                    if trial > value:
                        picked, value = a, trial
            choice[j, k] = picked
            local[up, k] += value
    for j in range(length):
        if parent[first + j] >= 0:
            new[j] = choice[j, new[parent[first + j]]]
    return improves(top, current)
