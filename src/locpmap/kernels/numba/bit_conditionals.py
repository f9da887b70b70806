"""Numba version of `reference.bit_conditionals`: conditional probabilities of samples packed into words.

A probability depends only on the *state* (labels) of the d neighbours.  It is computed once per state and multiplied by
the number of samples in that state.  There are 2^d states, or d + 1 if all weights are equal (numbers of label 1).
"""

import math

import numpy as np

from locpmap.kernels.model import UNIT
from locpmap.kernels.numba.bits import count_bits
from locpmap.kernels.numba.compiling import inlined, kernel
from locpmap.kernels.numba.edge_scores import potts_weight

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def bit_conditionals(model, words, n_samples, sums, lo, begin, stop):
    """Add to ``sums`` (n, S, 2) int64 at sites begin..stop; words (n, S).  At most 16 exponentials per site."""
    unary, features, indptr, neighbour, edges = model.unary, model.features, model.indptr, model.neighbour, model.edge
    alike = features.shape[1] == 1
    samples = np.empty(16, np.uint64)  # the samples in each state, one bit each
    zero, one = np.empty(16), np.empty(16)  # the scores of the two labels in each state
    for n in range(words.shape[0]):
        for i in range(begin, stop):
            samples[0] = _ALL >> np.uint64(64 - n_samples)
            zero[0], one[0] = unary[lo + n, i, 0], unary[lo + n, i, 1]
            n_states = 1
            for slot in range(indptr[i], indptr[i + 1]):  # the order of `conditionals`, for equal rounding
                word, weight = words[n, neighbour[slot]], potts_weight(features, lo + n, edges[slot])
                if alike:
                    split_by_count(samples, zero, one, n_states, word, weight)
                    n_states += 1
                else:
                    split_by_state(samples, zero, one, n_states, word, weight)
                    n_states *= 2
            for state in range(n_states):
                if samples[state]:
                    count, gap = np.int64(count_bits(samples[state])), one[state] - zero[state]
                    less = math.exp(-abs(gap))
                    likely, other = np.rint(1.0 / (1.0 + less) * UNIT), np.rint(less / (1.0 + less) * UNIT)
                    sums[n, i, 0] += count * np.int64(other if gap > 0 else likely)
                    sums[n, i, 1] += count * np.int64(likely if gap > 0 else other)


@inlined
def split_by_state(samples, zero, one, n_states, word, weight):
    """Split every state by the label of one more neighbour; the states with its label 1 are appended."""
    for state in range(n_states):
        both = samples[state]
        samples[n_states + state] = both & word
        samples[state] = both & ~word
        zero[n_states + state] = zero[state]
        one[n_states + state] = one[state] + weight
        zero[state] += weight


@inlined
def split_by_count(samples, zero, one, n_states, word, weight):
    """Split states that are numbers of neighbours with label 1."""
    last = n_states - 1
    samples[n_states] = samples[last] & word
    zero[n_states], one[n_states] = zero[last], one[last] + weight
    for state in range(last, 0, -1):
        samples[state] = (samples[state] & ~word) | (samples[state - 1] & word)
    samples[0] &= ~word
    for state in range(n_states):
        zero[state] += weight
