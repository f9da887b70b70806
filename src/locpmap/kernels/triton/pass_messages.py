"""One sweep of log-domain message passing; see the reference.  One launch per colour class.

A program loads all that it needs of a site before a barrier and stores after it: threads may hold copies of a lane.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.messages import (
    belief,
    cavity,
    lanes,
    mix,
    rows,
    send_potts,
    send_table,
    slots_of,
    steps,
    turns,
)


def pass_messages(
    model: Model,
    order: Any,
    messages: Any,
    dirty: Any,
    linear: Any,
    rho: Any,
    maximise: bool,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Visit positions begin..stop of ``order`` in images lo..hi, except those kept in the linear domain."""
    n_sites, n_labels = model.unary.shape[1:]
    for first, last, at_once in turns(model, order, begin, stop):
        sizes = lanes(n_labels, at_once)
        blocks = triton.cdiv(last - first, sizes["BLOCK"]) if at_once else 1
        _visit[((hi - lo) * blocks,)](
            model.unary,
            model.features,
            model.tables,
            model.indptr,
            model.neighbour,
            model.edge,
            model.end,
            model.reverse,
            order,
            messages,
            dirty,
            linear,
            rho,
            n_sites,
            messages.shape[1],
            *steps(model.features),
            *steps(model.tables),
            float(damping),
            float(tolerance),
            lo,
            first,
            last,
            blocks,
            POTTS=bool(model.potts),
            MAXIMISE=bool(maximise),
            DAMPED=damping > 0,
            N_FEATURES=model.features.shape[2],
            **sizes,
        )


@triton.jit(do_not_specialize=["lo", "begin", "stop", "blocks"])
def _visit(
    unary,
    features,
    tables,
    indptr,
    neighbour,
    edge,
    end,
    reverse,
    order,
    messages,
    dirty,
    linear,
    rho,
    n_sites,
    n_slots,
    feature_image,
    feature_edge,
    table_image,
    table_edge,
    damping: tl.float64,
    tolerance: tl.float64,
    lo,
    begin,
    stop,
    blocks,
    POTTS: tl.constexpr,
    MAXIMISE: tl.constexpr,
    DAMPED: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    DEGREES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each of ``blocks`` programs of an image visits BLOCK positions, and again that many times BLOCK further on."""
    image = (lo + tl.program_id(0) // blocks).to(tl.int64)
    unary += image * n_sites * N_LABELS
    messages += image * n_slots * N_LABELS
    dirty += image * n_sites
    features += image * feature_image
    tables += image * table_image
    here = tl.load(linear + image) == 0
    dtype = messages.dtype.element_ty
    damped, most = tl.full([1, 1, 1], damping, dtype), tl.full([1, 1, 1], tolerance, dtype)
    inside = tl.arange(0, LABELS)[None, None, :] < N_LABELS
    next_position = begin + tl.program_id(0) % blocks * BLOCK
    while next_position < stop:
        position = next_position + tl.arange(0, BLOCK)
        site = tl.load(order + position, mask=position < stop, other=0).to(tl.int64)
        mark = tl.load(dirty + site, mask=(position < stop) & here, other=0)
        active = mark > 0
        first_visit = mark > 1
        start = tl.load(indptr + site, mask=active, other=0)
        degree = tl.load(indptr + site + 1, mask=active, other=0) - start
        widest = tl.max(degree, axis=0).to(tl.int32)
        whole = rows(unary, site[:, None], active[:, None], -float("inf"), N_LABELS, LABELS)
        whole = belief(whole, messages, rho, edge, start, degree, widest, N_LABELS, LABELS, DEGREES)
        first = 0
        while first < widest:
            slot, real = slots_of(start, degree, first, DEGREES)
            between = tl.load(edge + slot, mask=real, other=0).to(tl.int64)
            back = tl.load(reverse + slot, mask=real, other=0)
            other_end = tl.load(neighbour + slot, mask=real, other=0)
            scale = 1.0 / tl.load(rho + between, mask=real, other=1.0).to(dtype)[:, :, None]
            said = cavity(whole, rows(messages, slot, real, 0.0, N_LABELS, LABELS))
            if POTTS:
                weight = tl.load(features + between * feature_edge, mask=real, other=0.0)[:, :, None]
                fresh, _ = send_potts(said, weight * scale, MAXIMISE, LABELS)
            else:
                orientation = tl.load(end + slot, mask=real, other=0)
                own = features + between * feature_edge
                table = tables + between * table_edge
                fresh, _ = send_table(
                    said, own, table, orientation, real, scale, MAXIMISE, N_FEATURES, N_LABELS, LABELS
                )
            old = rows(messages, back, real, 0.0, N_LABELS, LABELS)
            if DAMPED:
                fresh = mix(old, fresh, damped, MAXIMISE)
            same = fresh == old  # both -inf included
            moved = tl.abs(tl.where(same, 0.0, fresh) - tl.where(same, 0.0, old)) > most
            changed = tl.max((moved & inside).to(tl.int32), axis=2) > 0
            changed = (changed | first_visit[:, None]) & real
            theirs = tl.load(dirty + other_end, mask=changed, other=0)
            tl.debug_barrier()
            target = messages + back.to(tl.int64)[:, :, None] * N_LABELS + tl.arange(0, LABELS)[None, None, :]
            tl.store(target, fresh, mask=changed[:, :, None] & inside)
            tl.store(dirty + other_end, theirs | 1, mask=changed)
            first += DEGREES
        tl.debug_barrier()
        tl.store(dirty + site, tl.zeros_like(mark), mask=active)
        tl.debug_barrier()
        next_position += blocks * BLOCK
