"""One sweep of sum-product in the linear domain: no exponentials, no logarithms; see the reference.

Barriers between loads and stores as in `pass_messages`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.messages import lanes, of_label, rows, slots_of, steps, turns


def pass_linear(
    model: Model,
    order: Any,
    messages: Any,
    dirty: Any,
    linear: Any,
    weights: Any,
    couplings: Any,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Visit positions begin..stop of ``order`` in those images of lo..hi that are kept in the linear domain."""
    n_sites, n_labels = weights.shape[1:]
    for first, last, at_once in turns(model, order, begin, stop):
        sizes = lanes(n_labels, at_once)
        blocks = triton.cdiv(last - first, sizes["BLOCK"]) if at_once else 1
        _visit[((hi - lo) * blocks,)](
            weights,
            couplings,
            model.indptr,
            model.neighbour,
            model.edge,
            model.end,
            model.reverse,
            order,
            messages,
            dirty,
            linear,
            n_sites,
            messages.shape[1],
            *steps(couplings),
            float(damping),
            float(tolerance),
            lo,
            first,
            last,
            blocks,
            POTTS=bool(model.potts),
            **sizes,
        )


@triton.jit
def _times(a, b):
    return a * b


@triton.jit(do_not_specialize=["lo", "begin", "stop", "blocks"])
def _visit(
    weights,
    couplings,
    indptr,
    neighbour,
    edge,
    end,
    reverse,
    order,
    messages,
    dirty,
    linear,
    n_sites,
    n_slots,
    coupling_image,
    coupling_edge,
    damping: tl.float64,
    tolerance: tl.float64,
    lo,
    begin,
    stop,
    blocks,
    POTTS: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    DEGREES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each of ``blocks`` programs of an image visits BLOCK positions, and again that many times BLOCK further on."""
    image = (lo + tl.program_id(0) // blocks).to(tl.int64)
    weights += image * n_sites * N_LABELS
    messages += image * n_slots * N_LABELS
    dirty += image * n_sites
    couplings += image * coupling_image
    here = tl.load(linear + image) != 0
    dtype = messages.dtype.element_ty
    damped, most = tl.full([1, 1, 1], damping, dtype), tl.full([1, 1, 1], tolerance, dtype)
    label = tl.arange(0, LABELS)[None, None, :]
    inside = label < N_LABELS
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
        belief = rows(weights, site[:, None], active[:, None], 0.0, N_LABELS, LABELS).to(dtype)
        first = 0
        while first < widest:
            slot, real = slots_of(start, degree, first, DEGREES)
            belief *= tl.reduce(rows(messages, slot, real, 1.0, N_LABELS, LABELS), 1, _times, keep_dims=True)
            first += DEGREES
        first = 0
        while first < widest:
            slot, real = slots_of(start, degree, first, DEGREES)
            back = tl.load(reverse + slot, mask=real, other=0)
            other_end = tl.load(neighbour + slot, mask=real, other=0)
            coupling = couplings + tl.load(edge + slot, mask=real, other=0).to(tl.int64) * coupling_edge
            cavity = belief / rows(messages, slot, real, 1.0, N_LABELS, LABELS)
            total = tl.sum(cavity, axis=2, keep_dims=True)
            share = cavity / tl.where(real[:, :, None], total, 1.0)
            if POTTS:
                differ = tl.load(coupling, mask=real, other=0.0).to(dtype)[:, :, None]
                agree = tl.load(coupling + 1, mask=real, other=0.0).to(dtype)[:, :, None]
                fresh = differ + (agree - differ) * share
                if tl.min(agree - differ) < 0:
                    # Repulsion: where one label has nearly all the mass, the difference above cancels.
                    top = tl.max(share, axis=2, keep_dims=True)
                    best = label == tl.min(tl.where(share == top, label, LABELS), axis=2, keep_dims=True)
                    rest = tl.sum(tl.where(best, 0.0, share), axis=2, keep_dims=True)
                    fresh = tl.where(best & (agree < differ), differ * rest + agree * share, fresh)
            else:
                turned = tl.load(end + slot, mask=real, other=0)[:, :, None] != 0
                fresh = tl.zeros(share.shape, dtype)
                for a in range(N_LABELS):
                    entry = tl.where(turned, label * N_LABELS + a, a * N_LABELS + label)
                    table = tl.load(coupling[:, :, None] + entry, mask=real[:, :, None] & inside, other=0.0)
                    fresh += of_label(share, a, LABELS) * table.to(dtype)
            old = rows(messages, back, real, 1.0, N_LABELS, LABELS)
            fresh += damped * (old - fresh)
            moved = tl.abs(fresh - old) > most * fresh
            changed = tl.max((moved & inside).to(tl.int32), axis=2) > 0
            changed = (changed | first_visit[:, None]) & real
            theirs = tl.load(dirty + other_end, mask=changed, other=0)
            tl.debug_barrier()
            target = messages + back.to(tl.int64)[:, :, None] * N_LABELS + label
            tl.store(target, fresh, mask=changed[:, :, None] & inside)
            tl.store(dirty + other_end, theirs | 1, mask=changed)
            first += DEGREES
        tl.debug_barrier()
        tl.store(dirty + site, tl.zeros_like(mark), mask=active)
        tl.debug_barrier()
        next_position += blocks * BLOCK
