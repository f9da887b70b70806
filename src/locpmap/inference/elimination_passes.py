"""Forward and backward pass through the tables of a variable elimination, in the log domain.

Each site is eliminated from a table over itself and its scope::

    table_t(y_t, scope) = unary_t + pairwise terms with the scope + messages of earlier eliminations
    sum:  message_t(scope) = log Σ_{y_t} exp table_t        p(y_t | scope) = exp(table_t - message_t)
    max:  message_t(scope) = max_{y_t} table_t

B images with the same allowed labels are processed together, on the first axis of every array.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.inference.elimination import Plan
from locpmap.inference.max_flow import IMPOSSIBLE
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables

CACHED_ENTRIES = 2**26  # table entries cached for the backward pass (512 MB); larger plans compute tables twice


class Tables:
    """Terms of some images over their allowed labels, with the terms of single-label sites folded in."""

    def __init__(self, model: Model, images: Array, allowed: Array, plan: Plan) -> None:
        self.plan, self.n_images = plan, len(images)
        choices = [np.flatnonzero(mask) for mask in allowed]
        whole = allowed.all()
        self.unary = [model.unary[images, s][:, choices[s]].astype(np.float64) for s in range(len(choices))]  # (B, d)
        self.pairs: list[list[tuple[int, Array]]] = [[] for _ in plan.order]  # other site, (B, d, d of other)
        every = np.arange(len(model.edges))
        tables = np.stack([edge_tables(model, n, every) for n in images.tolist()])  # (B, E, L, L)
        self.constant = np.zeros(self.n_images)
        for e, (i, j) in enumerate(model.edges.tolist()):
            table = tables[:, e] if whole else tables[:, e][:, choices[i]][:, :, choices[j]]
            first, second = plan.position.get(i), plan.position.get(j)
            if first is None and second is None:
                self.constant += table[:, 0, 0]
            elif first is None:
                self.unary[j] = self.unary[j] + table[:, 0]
            elif second is None:
                self.unary[i] = self.unary[i] + table[:, :, 0]
            elif first < second:
                self.pairs[first].append((j, table))
            else:
                self.pairs[second].append((i, table.swapaxes(1, 2)))
        for s, choice in enumerate(choices):
            if len(choice) == 1:
                self.constant += self.unary[s][:, 0]
        if np.isneginf(self.constant).any():
            raise InputError(IMPOSSIBLE)

    def table(self, t: int, messages: list[Array]) -> Array:
        """Return the table from which site ``order[t]`` is eliminated, (B, its labels, labels of the scope ...)."""
        site, scope = self.plan.order[t], self.plan.scopes[t]
        axis = {other: k for k, other in enumerate((site, *scope), start=1)}

        def spread(values: Array, sites: list[int]) -> Array:
            shape = [self.n_images] + [1] * len(axis)
            for other, size in zip(sites, values.shape[1:], strict=True):
                shape[axis[other]] = size
            return values.reshape(shape)

        total = spread(self.unary[site], [site])
        for other, pair in self.pairs[t]:
            total = total + spread(pair, [site, other])
        for child, message in zip(self.plan.children[t], messages, strict=True):
            *rest, last = self.plan.scopes[child]
            total = total + spread(np.moveaxis(message, -1, 1), [last, *rest])
        return total


# Maps a table and its incoming messages to the outgoing message and data for the backward pass.
Eliminate = Callable[[Array, list[Array]], tuple[Array, Any]]


def sum_out(table: Array, messages: list[Array]) -> tuple[Array, Array]:
    """Return log-sum-exp over the site, and p(site | scope), which is 0 for impossible scopes."""
    top = table.max(axis=1, keepdims=True)
    top[top == -np.inf] = 0.0
    weight = np.subtract(table, top)
    np.exp(weight, out=weight)
    total = weight.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        top += np.log(total)
    total[total == 0] = 1.0
    weight /= total
    return top[:, 0], weight


def max_out(table: Array, messages: list[Array]) -> tuple[Array, list[Array]]:
    """Return the maximum over the site, and the incoming messages, from which the backward pass decodes."""
    return table.max(axis=1), messages


def forward_backward(tables: Tables, eliminate: Eliminate, constant: Array) -> Iterator[tuple[int, Any]]:
    """Eliminate all sites, yielding ``(t, None)``; then go back from last to first, yielding ``(t, cached data)``.

    To limit memory, eliminations are divided into segments.  The forward pass stores only messages that cross a border
    of segments, and the backward pass repeats each segment.  Messages are shifted to maximum 0; the shifts are added to
    ``constant`` (B,).
    """
    plan = tables.plan
    segments = _segments(plan.sizes, tables.n_images)
    waiting: dict[int, Array] = {}  # messages that no table has used yet
    borders: list[dict[int, Array]] = []

    def run(segment: range, waiting: dict[int, Array], constant: Array) -> Iterator[tuple[int, Any]]:
        for t in segment:
            incoming = [waiting.pop(child) for child in plan.children[t]]
            message, entry = eliminate(tables.table(t, incoming), incoming)
            top = message.reshape(len(message), -1).max(axis=1)
            if np.isneginf(top).any():
                raise InputError(IMPOSSIBLE)
            constant += top
            if plan.scopes[t]:
                waiting[t] = message - top.reshape(-1, *[1] * (message.ndim - 1))
            yield t, entry

    for segment in segments:
        borders.append(dict(waiting))
        cached = []
        for t, entry in run(segment, waiting, constant):
            if segment is segments[-1]:
                cached.append(entry)
            yield t, None
    for number in reversed(range(len(segments))):
        segment = segments[number]
        if segment is not segments[-1]:
            cached = [entry for _, entry in run(segment, borders[number], np.zeros_like(constant))]
        del borders[number]
        for t in reversed(segment):
            yield t, cached.pop()


def _segments(sizes: list[int], n_images: int) -> list[range]:
    """Divide the eliminations so that the tables of a segment, and the messages at all borders, stay small."""
    if not sizes:
        return []
    capacity = max(CACHED_ENTRIES, int((n_images * sum(sizes) * n_images * max(sizes)) ** 0.5))
    borders, filled = [0], 0
    for t, size in enumerate(sizes):
        if filled and filled + n_images * size > capacity:
            borders.append(t)
            filled = 0
        filled += n_images * size
    return [range(a, b) for a, b in zip(borders, [*borders[1:], len(sizes)], strict=True)]
