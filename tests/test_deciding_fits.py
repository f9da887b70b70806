"""Deciding in reports of fits and in estimators."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import locpmap as lp
from locpmap.deciding.sampled import overlap_of_maps
from locpmap.errors import InputError, InputTypeError
from locpmap.refining.decided import DATASET, IMAGE, Gain, Judged, confusions


def examples(n_images: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (N, 20, 24, 3) and true labels drawn from their softmax; the last label is rare."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n_images, 20, 24, 3)) + np.array([2.0, 1.0, -0.5])
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return logits, (p.cumsum(-1) > rng.random((n_images, 20, 24, 1))).argmax(-1)


def judged(n_images: int = 6) -> list[Judged]:
    logits, truth = examples(n_images)
    p = (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)).astype(np.float16)
    return [Judged(one.argmax(-1), one, true) for one, true in zip(p, truth, strict=True)]


@pytest.mark.parametrize("measure", ["iou", "dice"])
def test_gain_against_metrics_and_a_jackknife(measure: str) -> None:
    images = judged()
    values = Gain(measure, confusions(measure, images)).values()
    decider = lp.Decider(measure)
    for one in images:
        decider.add(one.probability)

    def mean(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
        iou = lp.metrics.intersection_over_union(np.stack([a for a, _ in pairs]), np.stack([b for _, b in pairs]), 3)
        iou = iou[np.isfinite(iou)]
        return float(np.mean(iou if measure == "iou" else 2 * iou / (1 + iou)))

    old = [(one.labels, one.truth) for one in images]
    slope, offset, _ = decider.rule
    new = [((one.probability.astype(np.float32) * slope + offset).argmax(-1), one.truth) for one in images]
    value, change, error = values[DATASET]
    assert value == pytest.approx(mean(old))
    assert change == pytest.approx(mean(new) - mean(old))
    left = np.array([mean(new[:n] + new[n + 1 :]) - mean(old[:n] + old[n + 1 :]) for n in range(6)])
    assert error == pytest.approx(np.sqrt(5 / 6 * np.sum((left - np.mean(left)) ** 2)))
    assert change > 2 * error
    singles = [mean([one]) for one in old]
    assert values[IMAGE][0] == pytest.approx(np.mean(singles))
    decided = [lp.deciding.decide(one.labels, one.probability, measure).labels for one in images]
    gains = [mean([(new, one.truth)]) - old for new, one, old in zip(decided, images, singles, strict=True)]
    assert values[IMAGE][1:] == pytest.approx((np.mean(gains), np.std(gains, ddof=1) / np.sqrt(6)), rel=1e-5)


@pytest.mark.parametrize("measure", ["iou", "dice"])
def test_standard_errors_of_the_gain_are_over_groups(measure: str) -> None:
    overlap, tables = partial(overlap_of_maps, measure), confusions(measure, judged())
    alone, copies = Gain(measure, tables).values(), Gain(measure, 2 * tables, 2 * [*range(6)]).values()
    assert all(copies[where] == pytest.approx(alone[where]) for where in (IMAGE, DATASET))
    old, image, dataset = (np.array(each) for each in zip(*tables, strict=True))
    single = [overlap(b) - overlap(a) for a, b in zip(old, image, strict=True)]
    changes: dict[str, list[float]] = {IMAGE: [], DATASET: []}  # without each group
    for group in ([0, 3], [1], [2, 4, 5]):
        changes[IMAGE].append(np.delete(single, group).mean())
        before, after = (np.delete(each, group, axis=0).sum(axis=0) for each in (old, dataset))
        changes[DATASET].append(overlap(after) - overlap(before))
    values = Gain(measure, tables, [0, 1, 2, 0, 2, 2]).values()
    for where, without in changes.items():
        assert values[where] == pytest.approx((*alone[where][:2], np.sqrt(2 * np.var(without))))


def test_verdict_counts_changes_of_more_than_two_standard_errors() -> None:
    good, bad = np.array([[9, 1], [1, 9]]), np.array([[7, 3], [3, 7]])
    same = [(bad, bad, bad)] * 5
    assert Gain("iou", same).verdict.count("does not help") == 2
    gains = Gain("iou", [(bad, good, bad), (bad, good + 1, bad)] * 3)
    (_, change, error), _ = gains.values().values()
    unchanged = "does not help over the data set (+0.0000 ± 0.0000)"
    assert gains.verdict == f"Deciding gains {change:.4f} ± {error:.4f} per image and {unchanged}."
    assert str(gains).endswith(gains.verdict)
    losses = Gain("iou", [(good, good, bad), (good, good, bad + 1)] * 3)
    _, (_, change, error) = losses.values().values()
    assert losses.verdict.endswith(f"(+0.0000 ± 0.0000) and loses {-change:.4f} ± {error:.4f} over the data set.")
    noisy = Gain("iou", [(bad, good, bad), (good, bad, bad), (bad, good, bad)])
    assert noisy.verdict.startswith("Deciding does not help per image (+")


def test_report_shows_what_deciding_gains() -> None:
    logits, truth = examples(16)  # with fewer, a decision allows for the rare label to be absent
    plain = lp.Refiner.fit(None, logits, truth, layout="hwk", scores="logits")
    refiner = lp.Refiner.fit(None, logits, truth, layout="hwk", scores="logits", objective="iou")
    assert plain.report is not None
    assert refiner.report is not None
    assert str(refiner.report).startswith(str(plain.report))
    assert "mean IoU over the data set" in str(refiner.report)
    assert plain.report.decided is None
    numbers = refiner.details["report"]["decided"]
    assert numbers["measure"] == "iou"
    assert numbers[DATASET][1] > 2 * numbers[DATASET][2]
    assert refiner.report.decided is not None
    assert numbers["says"] == refiner.report.decided.verdict
    assert str(refiner.report).splitlines()[-1] == numbers["says"]
    np.testing.assert_array_equal(plain.weights.scales, refiner.weights.scales)
    for wrong, sentence in (("iuo", "unknown objective 'iuo': did you mean 'iou'"), (np.eye(3), "is a ndarray")):
        with pytest.raises((InputError, InputTypeError), match=sentence):
            lp.Refiner.fit(None, logits, truth, layout="hwk", scores="logits", objective=wrong)  # type: ignore[arg-type]


def test_image_estimator_decides() -> None:
    estimators = pytest.importorskip("locpmap.estimators")
    rng = np.random.default_rng(1)
    truth = np.repeat(rng.random((5, 4, 4)) < 0.2, 3, axis=1).repeat(3, axis=2)
    images = truth + rng.normal(size=truth.shape)
    model = estimators.ImageCRF(n_samples=5, random_state=0).fit(images, np.where(truth, "cell", "back"))
    decision = model.decide(images, "dice", abstain=0.1)
    assert decision.labels.shape == images.shape
    assert set(np.unique(decision.labels)) <= {-1, 0, 1}
    result = model.crf_.infer(images, "locpmap", n_samples=5, seed=0)
    assert np.array_equal(decision.labels, result.decide("dice", abstain=0.1).labels)
    several = model.decide(list(images), "iou", over="dataset")
    assert np.array_equal([one.labels for one in several], result.decide("iou", over="dataset").labels)
    costly = model.decide(list(images), np.array([[0, 1], [9, 0]]), over="dataset")
    assert sum((one.labels == 1).sum() for one in costly) > (result.labels == 1).sum()


def test_site_estimator_decides() -> None:
    estimators = pytest.importorskip("locpmap.estimators")
    rng = np.random.default_rng(2)
    y = rng.random(300) < 0.2
    x = y[:, None] + rng.normal(size=(300, 1))
    model = estimators.CRFClassifier(random_state=0).fit(x, np.where(y, "rain", "calm"))
    decision = model.decide(x, "iou")
    p = model.predict_proba(x)
    assert (decision.labels == 1).sum() > (p.argmax(1) == 1).sum()
    assert np.array_equal(model.decide(x, "accuracy").labels, p.argmax(1))
