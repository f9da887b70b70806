"""Decisions for IoU and Dice of results with samples, compared with brute force and with simulated true labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import locpmap as lp
from locpmap.deciding import decide

SIDE, CELL, K = 6, 8, 5


def enlarged(cells: np.ndarray) -> np.ndarray:
    """Repeat cells (.., 6, 6) as blocks of 8 by 8 pixels."""
    return cells.repeat(CELL, axis=-2).repeat(CELL, axis=-1)


def simulated(seed: int, n_maps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (48, 48, 5) of an image of 36 independent regions, and label maps (M, 48, 48) drawn."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(K, 0.5), size=(SIDE, SIDE))
    drawn = (p.cumsum(-1) > rng.random((n_maps, SIDE, SIDE, 1))).argmax(-1)
    return np.moveaxis(enlarged(np.moveaxis(p, -1, 0)), 0, -1).astype(np.float32), enlarged(drawn)


def naive_overlap(measure: str, one: np.ndarray, other: np.ndarray) -> float:
    values = []
    for k in np.union1d(one, other):
        a, b = one == k, other == k
        union, total = (a | b).sum(), a.sum() + b.sum()
        values.append((a & b).sum() / union if measure == "iou" else 2 * (a & b).sum() / total)
    return float(np.mean(values))


@pytest.mark.parametrize("measure", ["iou", "dice"])
def test_decision_is_the_better_of_rule_and_argmax_over_the_samples(measure: str) -> None:
    kept = 0
    for seed in range(12):
        p, maps = simulated(seed, 8)
        if seed % 2:  # one sample of what the rule assumes: labels that occur less often
            maps = decide(p.argmax(-1), p, measure).labels[None]
        rule, most = decide(p.argmax(-1), p, measure).labels, p.argmax(-1)
        means = [np.mean([naive_overlap(measure, each, one) for one in maps]) for each in (most, rule)]
        found = decide(most, p, measure, samples=maps)
        assert np.array_equal(found.labels, (most, rule)[int(means[1] > means[0])])
        assert found.expected == pytest.approx(max(means))
        kept += means[0] >= means[1]
    assert 0 < kept < 12


def test_samples_avoid_the_loss_with_many_independent_regions() -> None:
    """Without samples, the rule takes labels for absent that occur in one of many regions."""
    rows = []
    for seed in range(40):
        p, maps = simulated(seed, 60)
        most, truths = p.argmax(-1), maps[20:]
        decided = [decide(most, p, "iou", samples=samples).labels for samples in (None, maps[:20])]
        means = [np.mean([naive_overlap("iou", each, truth) for truth in truths]) for each in (most, *decided)]
        rows.append([means[1] - means[0], means[2] - means[0]])
    without, with_samples = np.mean(rows, axis=0)
    errors = np.std(rows, axis=0) / np.sqrt(len(rows))
    assert without < -4 * errors[0]
    assert with_samples > -2 * errors[1]


def test_batches_and_masked_pixels_use_the_samples_of_their_image() -> None:
    two = [simulated(seed, 9) for seed in (3, 4)]
    p, maps = np.stack([one for one, _ in two]), np.stack([many for _, many in two], axis=1)
    labels = p.argmax(-1)
    labels[:, :16] = -1
    maps[:, :, :16] = -1
    batch = decide(labels, p, "iou", samples=maps, batched=True)
    for n in range(2):
        single = decide(labels[n, 16:], p[n, 16:], "iou", samples=maps[:, n, 16:])
        assert np.array_equal(batch.labels[n, 16:], single.labels)
        assert batch.expected[n] == pytest.approx(single.expected)
        assert (batch.labels[n, :16] == -1).all()


def test_result_with_samples_uses_them() -> None:
    logits = 2 * np.random.default_rng(0).normal(size=(24, 30, 4))
    result = lp.refine(None, logits, layout="hwk", decoder=lp.LocPMAP(20, start="perturbed", keep_samples=True))
    decision = result.decide("iou")
    assert decision.expected == pytest.approx(
        np.mean([naive_overlap("iou", decision.labels, sample) for sample in result.samples])
    )
    assert decision.expected != replace(result, samples=None).decide("iou").expected
    assert (
        result.decide("iou", over="dataset").expected
        == replace(result, samples=None).decide("iou", over="dataset").expected
    )
