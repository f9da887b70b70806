"""Gibbs sampling; see the reference.  One launch performs many sweeps, with one Philox call per site and sweep."""

import torch
import triton
import triton.language as tl

from locpmap.kernels import model as constants
from locpmap.kernels.model import NOTHING, Array, Model
from locpmap.kernels.spec import Chain
from locpmap.kernels.triton.grid_barrier import ARRIVALS, BOUNDS, at_once, launch_of, wait_for_all
from locpmap.kernels.triton.local_scores import add_local_scores, items_of, load_labels, pairs_of, sizes_of
from locpmap.kernels.triton.philox import CHAIN, uniform, words

VOTES, CONDITIONAL = tl.constexpr(constants.VOTES), tl.constexpr(constants.CONDITIONAL)
ITEMS = 128  # sites per program and step, one per thread; fewer with many labels or with tables


def gibbs(model: Model, chain: Chain, n_sweeps: int, keep: bool = False) -> Array:
    """Advance a chain in one launch; return its labels after the K counted sweeps, (K, N, S); K = 0 unless ``keep``."""
    labels, n_images = chain.labels, len(chain.labels)
    kept = torch.empty((chain.counted(n_sweeps) if keep else 0, *labels.shape), dtype=torch.int16, device=labels.device)
    totals, adds = (labels, NOTHING) if chain.totals is None else (chain.totals, chain.adds)
    sizes = sizes_of(model, 4096 if model.potts else 1024, ITEMS)
    grid, notes, n_classes = launch_of(model, n_images, 1, sizes.items)
    arrays = (model.unary, labels, totals, kept, model.order, model.site_id)
    sweeps = (chain.sweeps + 1, chain.sweeps + 1 + n_sweeps, chain.first_counted, chain.thin)
    _gibbs[grid](
        *(arrays, pairs_of(model), notes, float(chain.temperature), float(chain.cooling), *map(int, chain.key)),
        *(chain.first_image, *sweeps, n_classes, n_images, labels.shape[1], adds, len(kept) > 0, sizes),
        **at_once(),
    )
    chain.sweeps += n_sweeps
    return kept


@triton.jit(
    do_not_specialize=["k0", "k1", "first_image", "sweep", "end", "first_counted", "thin", "n_classes", "n_images"]
)
def _gibbs(
    arrays,
    pairs,
    notes,
    temperature: tl.float64,
    cooling: tl.float64,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    sweep,
    end,
    first_counted,
    thin,
    n_classes,
    n_images,
    n_sites,
    ADDS: tl.constexpr,
    KEEPS: tl.constexpr,
    SIZES: tl.constexpr,
):
    LABELS: tl.constexpr = SIZES.labels
    N_LABELS: tl.constexpr = SIZES.n_labels
    unary, labels, totals, kept, order, site_id = arrays
    label = tl.arange(0, LABELS)[:, None]
    dtype: tl.constexpr = unary.dtype.element_ty
    turn = 0
    while sweep < end:
        # At least 1e-30, so that it does not round to 0 in single precision, where a gap of 0 would become NaN.
        heat = tl.maximum(tl.full((1, 1), temperature, tl.float64), 1e-30).to(dtype)
        counts = (sweep >= first_counted) & ((sweep - first_counted) % thin == 0)
        number = 0
        while number < n_classes:
            first, last = tl.load(notes + BOUNDS + number), tl.load(notes + BOUNDS + number + 1)
            tile, n_tiles = tl.program_id(0), n_images * tl.cdiv(last - first, SIZES.items)
            while tile < n_tiles:
                image, site, inside = items_of(tile, order, first, last, SIZES.items)
                own = image * n_sites + site
                scores = load_labels(unary + own * N_LABELS, 1, inside, SIZES)
                around = (labels + image * n_sites, 1, None)
                scores = add_local_scores(scores, around, pairs, image, site, inside, SIZES, 0, ".cg")
                top = tl.max(scores, axis=0)
                possible = top > float("-inf")
                weights = tl.exp((scores - tl.where(possible, top, 0.0)[None, :]) / heat)
                total = tl.where(possible, tl.sum(weights, axis=0), 1.0)
                where = tl.load(site_id + site, mask=inside, other=0)
                word, _, _, _ = words(k0, k1, CHAIN, first_image + image, sweep, where, 0)
                threshold = uniform(word).to(dtype) * total
                # The partial sums of a parallel scan are rounded independently: they may increase at a weight of 0,
                # or not reach the total.
                likely = weights > 0
                passed = likely & (tl.cumsum(weights, axis=0) > threshold[None, :])
                drawn = tl.min(tl.where(passed, label, LABELS), axis=0)
                drawn = tl.where(drawn < LABELS, drawn, tl.max(tl.where(likely, label, 0), axis=0))
                drawn = tl.where(possible, drawn, tl.load(labels + own, mask=inside, other=0).to(tl.int32))
                tl.store(labels + own, drawn.to(labels.dtype.element_ty), mask=inside)

                if ADDS == VOTES:
                    place = totals + own * N_LABELS + drawn
                    tl.store(place, tl.load(place, mask=inside & counts, other=0.0) + 1, mask=inside & counts)
                elif ADDS == CONDITIONAL:
                    p = tl.where(possible[None, :], weights / total[None, :], (label == drawn[None, :]).to(dtype))
                    place = totals + own[None, :] * N_LABELS + label
                    held = (inside & counts)[None, :] & (label < N_LABELS)
                    sums = tl.load(place, mask=held, other=0.0)
                    tl.store(place, sums + p.to(sums.dtype), mask=held)
                if KEEPS:
                    tl.store(kept + own, drawn.to(kept.dtype.element_ty), mask=inside & counts)
                tile += tl.num_programs(0)
            turn += 1
            wait_for_all(notes + ARRIVALS, turn, tl.num_programs(0))
            number += 1
        temperature *= cooling
        kept += counts.to(tl.int64) * n_images * n_sites
        sweep += 1
