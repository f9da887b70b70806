"""The edges' part of the Bethe approximation of log Z; see the reference.  O(L) per edge of a Potts model."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.messages import cavity, lanes, log_sum, rows, send_potts, send_table, slots_of, steps


def bethe_edges(model: Model, messages: Any, beliefs: Any, terms: Any, lo: int, hi: int, begin: int, stop: int) -> None:
    """Fill ``terms`` (N, S) with the sum over the edges that begin at each site."""
    n_sites, n_labels = beliefs.shape[1:]
    sizes = lanes(n_labels)
    blocks = -(-(stop - begin) // sizes["BLOCK"])
    _add_edges[((hi - lo) * blocks,)](
        model.features,
        model.tables,
        model.indptr,
        model.neighbour,
        model.edge,
        model.end,
        model.reverse,
        model.order,
        messages,
        beliefs,
        terms,
        n_sites,
        messages.shape[1],
        *steps(model.features),
        *steps(model.tables),
        lo,
        begin,
        stop,
        blocks,
        POTTS=bool(model.potts),
        N_FEATURES=model.features.shape[2],
        **sizes,
    )


@triton.jit(do_not_specialize=["lo", "begin", "stop", "blocks"])
def _add_edges(
    features,
    tables,
    indptr,
    neighbour,
    edge,
    end,
    reverse,
    order,
    messages,
    beliefs,
    terms,
    n_sites,
    n_slots,
    feature_image,
    feature_edge,
    table_image,
    table_edge,
    lo,
    begin,
    stop,
    blocks,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    DEGREES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK positions of one image."""
    image = (lo + tl.program_id(0) // blocks).to(tl.int64)
    messages += image * n_slots * N_LABELS
    beliefs += image * n_sites * N_LABELS
    features += image * feature_image
    tables += image * table_image
    position = begin + tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    active = position < stop
    site = tl.load(order + position, mask=active, other=0).to(tl.int64)
    start = tl.load(indptr + site, mask=active, other=0)
    degree = tl.load(indptr + site + 1, mask=active, other=0) - start
    widest = tl.max(degree, axis=0).to(tl.int32)
    own = rows(beliefs, site[:, None], active[:, None], -float("inf"), N_LABELS, LABELS)
    sums = tl.zeros([BLOCK], beliefs.dtype.element_ty)
    first = 0
    while first < widest:
        slot, real = slots_of(start, degree, first, DEGREES)
        orientation = tl.load(end + slot, mask=real, other=1)
        real &= orientation == 0  # each edge once
        between = tl.load(edge + slot, mask=real, other=0).to(tl.int64)
        back = tl.load(reverse + slot, mask=real, other=0)
        other_end = tl.load(neighbour + slot, mask=real, other=0)
        here = cavity(own, rows(messages, slot, real, 0.0, N_LABELS, LABELS))
        there = rows(beliefs, other_end, real, -float("inf"), N_LABELS, LABELS)
        there = cavity(there, rows(messages, back, real, 0.0, N_LABELS, LABELS))
        weights = features + between * feature_edge
        if POTTS:
            weight = tl.load(weights, mask=real, other=0.0)[:, :, None]
            sent, taken = send_potts(here, weight, False, LABELS)
        else:
            table = tables + between * table_edge
            sent, taken = send_table(here, weights, table, orientation, real, 1.0, False, N_FEATURES, N_LABELS, LABELS)
        added = tl.where(real[:, :, None], taken + log_sum(sent + there), 0.0)
        sums += tl.sum(tl.sum(added, axis=2), axis=1)
        first += DEGREES
    tl.store(terms + image * n_sites + site, sums, mask=active)
