"""What each site believes, given the messages; see the reference.  Sums are made in the beliefs' type."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.messages import belief, lanes, rows


def log_beliefs(
    model: Model,
    messages: Any,
    rho: torch.Tensor | None,
    beliefs: Any,
    normalisers: Any,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Fill ``beliefs`` (N, S, L), and ``normalisers`` (N, S) with what normalising took from them.

    ``rho`` may be None where it is 1 everywhere.
    """
    n_sites, n_labels = beliefs.shape[1:]
    sizes = lanes(n_labels)
    blocks = -(-(stop - begin) // sizes["BLOCK"])
    arrays = (model.unary, model.indptr, model.edge, model.order, messages, rho, beliefs, normalisers)
    _believe[((hi - lo) * blocks,)](*arrays, n_sites, messages.shape[1], lo, begin, stop, blocks, **sizes)


@triton.jit(do_not_specialize=["lo", "begin", "stop", "blocks"])
def _believe(
    unary,
    indptr,
    edge,
    order,
    messages,
    rho,
    beliefs,
    normalisers,
    n_sites,
    n_slots,
    lo,
    begin,
    stop,
    blocks,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    DEGREES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK positions of one image."""
    image = (lo + tl.program_id(0) // blocks).to(tl.int64)
    messages += image * n_slots * N_LABELS
    position = begin + tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    active = position < stop
    site = tl.load(order + position, mask=active, other=0).to(tl.int64)
    start = tl.load(indptr + site, mask=active, other=0)
    degree = (tl.load(indptr + site + 1, mask=active, other=0) - start).to(tl.int32)
    row = image * n_sites + site
    own = rows(unary, row[:, None], active[:, None], -float("inf"), N_LABELS, LABELS).to(beliefs.dtype.element_ty)
    most = tl.max(degree, axis=0)
    whole = belief(own, messages, rho, edge, start, degree, most, N_LABELS, LABELS, DEGREES)
    stuck = tl.max(whole, axis=2, keep_dims=True) == -float("inf")
    whole = tl.where(stuck, own, whole)
    # The largest goes first: next to large scores, the logarithm of a sum is lost in rounding.
    top = tl.max(whole, axis=2, keep_dims=True)
    whole -= tl.where(active[:, None, None], top, 0.0)
    log_sum = tl.log(tl.sum(tl.exp(whole), axis=2, keep_dims=True))
    label = tl.arange(0, LABELS)[None, None, :]
    target = beliefs + row[:, None, None] * N_LABELS + label
    tl.store(target, whole - log_sum, mask=active[:, None, None] & (label < N_LABELS))
    taken = tl.where(stuck, -float("inf"), top + log_sum)
    tl.store(normalisers + row[:, None, None], taken, mask=active[:, None, None])
