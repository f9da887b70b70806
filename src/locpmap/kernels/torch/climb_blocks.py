"""Block-wise ascent; see the reference.  Blocks that do not touch and look alike are improved together.

``plan`` holds NumPy arrays: like a model's ``class_ptr``, it says what to do in turn.  Tensors are (n, K, J, ..):
images, blocks, sites of a block; labels and samples come last.
"""

from __future__ import annotations

import torch
from torch import Tensor

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import PLAIN, Perturbation
from locpmap.kernels.reference import climb_blocks as reference
from locpmap.kernels.reference import noise as streams
from locpmap.kernels.torch.block_runs import Run, runs_of
from locpmap.kernels.torch.noise import keys_of, uniform
from locpmap.kernels.torch.perturbing import begin, label_words, perturb
from locpmap.kernels.torch.scores import local_scores, pair_terms

ROUNDING = {torch.float64: reference.ROUNDING, torch.float32: 1e-6}


def climb_blocks(
    model: Model,
    plan: BlockPlan,
    perturbation: Perturbation,
    start: int,
    given: Tensor,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: Tensor,
) -> Tensor:
    """Fill ``labels`` (hi - lo, S, R); returns the last sweep that changed anything, (hi - lo, R)."""
    unary, key = model.unary[lo:hi], (first_image + lo, first_sample)
    noisy = perturb(unary, model.site_id, perturbation, *key, labels.shape[2])
    begin(unary, noisy, model.site_id, perturbation, start, given[lo:hi], *key, labels)
    last = torch.zeros((hi - lo, labels.shape[2]), dtype=torch.int32, device=labels.device)
    for sweep in range(1, max_sweeps + 1):
        changed = torch.zeros_like(last, dtype=torch.bool)
        for run in runs_of(model, plan):
            terms = pair_terms(model, run.part, lo, hi)
            outside = torch.where(run.inside if terms.ndim == 3 else run.inside[:, :, None, None], 0.0, terms)
            alone = unary[..., None].expand_as(noisy) if run.joint else noisy
            local = local_scores(alone[:, run.part.sites], labels, run.part.neighbour, outside)
            local = local.unflatten(1, (-1, len(run.parent)))
            held = labels[:, run.part.sites].long().unflatten(1, (-1, len(run.parent)))  # (n, K, J, R)
            if run.joint:
                extra = joint_noise(model, run, perturbation, *key, local)
                best, new, old = best_joint(local, held, inner_scores(run, terms, local.shape[3]), extra)
            else:
                tables = dense(pair_terms(model, run.up, lo, hi), local.shape[3])[:, :, 0]
                tables = tables.unflatten(1, (-1, len(run.parent))).to(local.dtype)
                best = best_forest(local, tables, run.parent)
                new, old = (forest_score(local, tables, run.parent, y) for y in (best, held))
            better = improves(new, old)
            taken = torch.where(better[:, :, None], best, held).flatten(1, 2)
            labels[:, run.part.sites] = taken.to(labels.dtype)
            changed |= better.any(dim=1)
        last = torch.where(changed, sweep, last)
        if not changed.any():
            break
    return last


def improves(new: Tensor, old: Tensor) -> Tensor:
    """Whether a score is better by more than rounding; anything allowed is better than something forbidden."""
    return new > torch.where(old > -torch.inf, old + ROUNDING[old.dtype] * (1 + old.abs()), old)


def dense(terms: Tensor, n_labels: int) -> Tensor:
    """Pairwise terms as tables (1|n, P, D, L, L)."""
    if terms.ndim == 5:
        return terms
    return terms[..., None, None] * torch.eye(n_labels, dtype=terms.dtype, device=terms.device)


def best_forest(local: Tensor, tables: Tensor, parent: list[int]) -> Tensor:
    """The best labels (n, K, J, R) of forests, from the leaves to the roots and back.

    Scores (n, K, J, L, R); tables (1|n, K, J, L, L) of a site's label and its parent's.
    """
    belief = list(local.unbind(2))
    choice: dict[int, Tensor] = {}  # of a site for every label of its parent, (n, K, L, R)
    for j in range(len(parent) - 1, -1, -1):
        if parent[j] >= 0:
            top, choice[j] = (belief[j][:, :, :, None] + tables[:, :, j, :, :, None]).max(dim=2)
            belief[parent[j]] = belief[parent[j]] + top
    labels: list[Tensor] = []
    for j, up in enumerate(parent):
        given_parent = choice[j].gather(2, labels[up][:, :, None])[:, :, 0] if up >= 0 else belief[j].argmax(dim=2)
        labels.append(given_parent)
    return torch.stack(labels, dim=2)


def forest_score(local: Tensor, tables: Tensor, parent: list[int], labels: Tensor) -> Tensor:
    """The scores (n, K, R) of labels (n, K, J, R)."""
    total = local.gather(3, labels[:, :, :, None])[:, :, :, 0].sum(dim=2)
    flat, n_labels = tables.flatten(3).expand(len(local), -1, -1, -1), tables.shape[4]
    for j, up in enumerate(parent):
        if up >= 0:
            total = total + flat[:, :, j].gather(2, labels[:, :, j] * n_labels + labels[:, :, up])
    return total


def labellings(n_labels: int, length: int, device: torch.device) -> Tensor:
    """All joint labellings (J, M), last site fastest."""
    number = torch.arange(n_labels**length, device=device)
    return torch.stack([number // n_labels ** (length - 1 - j) % n_labels for j in range(length)])


def inner_scores(run: Run, terms: Tensor, n_labels: int) -> Tensor:
    """The pairwise scores inside each block of every joint labelling, (1|n, K, M)."""
    length = len(run.parent)
    each = labellings(n_labels, length, terms.device)
    tables = dense(terms, n_labels).unflatten(1, (-1, length)).flatten(4)  # (1|n, K, J, D, L²)
    earlier = run.earlier.unflatten(0, (-1, length))  # (K, J, D)
    total = tables.new_zeros((*tables.shape[:2], each.shape[1]))
    for j in range(length):
        for d in range(tables.shape[3]):
            there = earlier[:, j, d]
            pair = each[j] * n_labels + each[there.clamp(min=0)]  # (K, M)
            scores = tables[:, :, j, d].gather(2, pair.expand(len(tables), -1, -1))
            total = total + torch.where(there[:, None] >= 0, scores, 0.0)
    return total


def joint_noise(
    model: Model, run: Run, perturbation: Perturbation, first_image: int, first_sample: int, local: Tensor
) -> Tensor | None:
    """The noise (n, K, M, R) of joint labellings, keyed by each block's first site; None where there is none."""
    if perturbation.scheme != PLAIN:
        return None
    n_images, _, length, n_labels, n_samples = local.shape
    first = model.site_id[run.part.sites[::length]]
    keys = keys_of(perturbation.k0, perturbation.k1, first_image, n_images, first)
    drawn = label_words(keys, streams.PLAIN, first_sample, n_samples, n_labels**length)
    gumbel = [-torch.log(-torch.log(uniform(word, local.dtype))) for word in drawn]
    return perturbation.amount * torch.stack(gumbel, dim=2)


def best_joint(local: Tensor, held: Tensor, inner: Tensor, extra: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The best labels (n, K, J, R) by enumeration, their scores (n, K, R), and those of the labels held."""
    length, n_labels = local.shape[2:4]
    each = labellings(n_labels, length, local.device)
    totals = inner[..., None].to(local.dtype)
    for j in range(length):
        totals = totals + local[:, :, j, each[j]]
    if extra is not None:
        totals = totals + extra
    new, best = totals.max(dim=2)
    number = sum(held[:, :, j] * n_labels ** (length - 1 - j) for j in range(length))
    old = totals.gather(2, number[:, :, None])[:, :, 0]
    return each[:, best].movedim(0, 2), new, old
