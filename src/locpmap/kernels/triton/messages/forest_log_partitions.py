"""log Z of spanning forests under the reparametrised scores; see the reference.

One program per image and forest goes from the deepest sites to the roots, level by level.  A site takes what its
children sent, instead of their adding to it: so sums have one order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.triton.local_scores import pairs_of
from locpmap.kernels.triton.messages.messages import belief, cavity, lists_of, log_sum, rows, send, slots_of, tile_of

_WARPS = 8  # with 16 lanes a thread: most levels fit into one tile


def forest_log_partitions(
    model: Model,
    messages: Any,
    rho: Any,
    orders: Any,
    parents: Any,
    values: Any,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Fill ``values[n, t]`` (N, K) for images lo..hi and forests begin..stop.

    ``orders`` (K, S) is not read: ``parents`` (K, S), the slot of each site's parent or -1 at a root, says it all.
    """
    if hi <= lo or stop <= begin:
        return
    parents = parents[begin:stop]
    order, ends = _by_depth(model, parents)
    sent = torch.empty((hi - lo, *parents.shape, model.unary.shape[2]), dtype=messages.dtype, device=messages.device)
    state = (model.unary, pairs_of(model), messages, rho, (parents, order, ends), sent, values[lo:hi, begin:stop])
    sizes = (values.stride(0), parents.shape[1], messages.shape[1])
    _ascend[(hi - lo, stop - begin)](*state, sizes, ends.shape[1] - 1, lo, tile_of(model, 4 * _WARPS), num_warps=_WARPS)


def _by_depth(model: Model, parents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sites of each forest sorted by their distance from the root, (K, S), and where each distance begins."""
    n_sites = parents.shape[1]
    site = torch.arange(n_sites, device=parents.device).expand_as(parents)
    above = site
    if len(model.neighbour):
        above = torch.where(parents < 0, site, model.neighbour[parents.clamp(min=0).long()].long())
    depth = (above != site).long()
    step = 1
    while step < n_sites:  # doubling: ``above`` is 1, 2, 4, .. sites up, ``depth`` the length of the way there
        depth = depth + depth.gather(1, above)
        above = above.gather(1, above)
        step *= 2
    levels = torch.arange(int(depth.max()) + 2, device=parents.device)
    ordered, order = torch.sort(depth, dim=1, stable=True)
    ends = torch.searchsorted(ordered, levels.expand(len(parents), -1).contiguous())
    return order.to(torch.int32), ends.to(torch.int32)


@triton.jit(do_not_specialize=["n_levels", "lo"])
def _ascend(unary, pairs, messages, rho, forests, sent, values, sizes, n_levels, lo, TILE: tl.constexpr):
    """One image and one forest; ``ends`` (K, levels + 1)."""
    N_LABELS: tl.constexpr = TILE.n_labels
    BLOCK: tl.constexpr = TILE.block
    value_stride, n_sites, n_slots = sizes
    parents, order, ends = forests
    forest = tl.program_id(1)
    image = (lo + tl.program_id(0)).to(tl.int64)
    unary += image * n_sites * N_LABELS
    messages += image * n_slots * N_LABELS
    sent += (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + forest) * n_sites * N_LABELS
    parents += forest * n_sites
    order += forest * n_sites
    ends += forest * (n_levels + 1)
    features, tables = pairs.features + image * pairs.feature_image, pairs.tables + image * pairs.table_image
    dtype = messages.dtype.element_ty
    label = tl.arange(0, TILE.labels)[None, None, :]
    total = tl.zeros([BLOCK, 1, 1], tl.float64)
    level = n_levels - 1
    while level >= 0:
        position, stop = tl.load(ends + level), tl.load(ends + level + 1)
        while position < stop:
            site, inside, start, degree = lists_of(pairs, order, position + tl.arange(0, BLOCK), stop)
            most = tl.max(degree, axis=0)
            whole = rows(unary, site[:, None], inside[:, None], -float("inf"), TILE).to(dtype)
            whole = belief(whole, messages, rho, pairs, start, degree, most, TILE)
            first = 0
            while first < most:
                slot, real = slots_of(start, degree, first, TILE)
                other_end = tl.load(pairs.neighbour + slot, mask=real, other=0)
                back = tl.load(pairs.reverse + slot, mask=real, other=0)
                child = real & (tl.load(parents + other_end, mask=real, other=-1) == back)
                said = rows(sent, other_end, child, 0.0, TILE, ".cg")
                whole += tl.sum(cavity(said, rows(messages, slot, child, 0.0, TILE)), 1, keep_dims=True)
                first += TILE.degrees
            up = tl.load(parents + site, mask=inside, other=-1)[:, None]
            real = up >= 0
            edge = tl.load(pairs.edge + up, mask=real, other=0).to(tl.int64)
            here = cavity(whole, rows(messages, up, real, 0.0, TILE))
            scale = 1.0 / tl.load(rho + edge, mask=real, other=1.0).to(dtype)[:, :, None]
            end = tl.load(pairs.end + up, mask=real, other=0)
            fresh, taken = send(here, pairs, features, tables, edge, end, real, scale, False, TILE)
            gain = tl.where(real[:, :, None], taken, log_sum(whole))
            total += tl.where(inside[:, None, None], gain, 0.0).to(tl.float64)
            target = sent + site[:, None, None] * N_LABELS + label
            tl.store(target, fresh, mask=real[:, :, None] & (label < N_LABELS))
            position += BLOCK
        tl.debug_barrier()  # what this level sent, the next reads
        level -= 1
    tl.store(values + tl.program_id(0) * value_stride + forest, tl.sum(total))
