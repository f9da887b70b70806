"""Learning a refiner: what it finds, and whether it says plainly what refinement is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import locpmap as lp
from locpmap import metrics
from locpmap.errors import InputError, InputTypeError
from locpmap.refining import crossvalidation
from locpmap.refining.areas import crps, fit_areas, prepare, sampled_fractions
from locpmap.refining.examples import Example, gather
from locpmap.refining.fitting import fit_scale, learn
from locpmap.refining.presence import fit_presence
from locpmap.refining.scoring import METRICS, Score, difference, score, softmax, total
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
N, H, W = 8, 24, 32


def regions(seed: int = 0) -> Array:
    """Label maps (N, H, W) of two halves, parted somewhere."""
    places = np.random.default_rng(seed).integers(8, W - 8, N)
    return np.stack([np.broadcast_to(np.arange(W) >= place, (H, W)) for place in places]).astype(int)


def noisy(labels: Array, noise: float, seed: int = 1) -> Array:
    return 2 * np.eye(2)[labels] + noise * np.random.default_rng(seed).normal(size=(*labels.shape, 2))


def honest_noise(seed: int = 2) -> tuple[Array, Array]:
    """Logits, and labels drawn from their softmax, pixel by pixel: nothing can be better than the network."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(N, H, W, 2))
    return logits, (rng.random((N, H, W)) < softmax(logits)[..., 1]).astype(int)


def examples(images: Any, logits: Any, labels: Any, stride: float | None = None) -> list[Example]:
    return gather(images, logits, labels, -1, "hwk", "logits", stride)


@pytest.fixture(scope="module")
def helped() -> lp.Refiner:
    labels = regions()
    return lp.Refiner.fit(labels * 200.0, noisy(labels, 1.0), labels, n_folds=2)


def test_it_says_so_where_refinement_helps(helped: lp.Refiner, tmp_path: Path) -> None:
    report = helped.report
    assert report is not None
    assert report.helps
    assert "Refinement helps these data (IoU +" in str(report)
    assert report.value("refined", "IoU") > report.value("network", "IoU") + 0.1
    assert report.value("network, scaled", "IoU") == report.value("network", "IoU")
    assert helped.weights.guided.max() > 0.2
    helped.save(tmp_path / "mine.safetensors")
    again = lp.Refiner.load(tmp_path / "mine.safetensors")
    assert again.details["report"]["says"] == report.verdict
    np.testing.assert_array_equal(again.weights.pairwise, helped.weights.pairwise)


def test_progress_is_told_image_by_image() -> None:
    heard: list[tuple[int, int, float]] = []
    labels = regions()
    told = lp.Refiner.fit(None, noisy(labels, 1.0), labels, n_folds=2, progress=lambda *call: heard.append(call))
    assert [call[:2] for call in heard] == [(n, N) for n in range(1, N + 1)]
    assert told.report is not None
    assert heard[-1][2] == pytest.approx(told.report.value("refined", "NLL"))
    with pytest.raises(InputTypeError, match="progress is 5, expected True, False or a function"):
        lp.Refiner.fit(None, noisy(labels, 1.0), labels, n_folds=2, progress=5)  # type: ignore[arg-type]


def test_it_says_so_where_refinement_does_not_help() -> None:
    logits, labels = honest_noise()
    images = np.random.default_rng(3).random((N, H, W, 3))  # whose edges mean nothing
    refiner = lp.Refiner.fit(images, logits, labels, n_folds=2)
    assert refiner.report is not None
    assert not refiner.report.helps
    assert "does not help" in refiner.report.verdict or "makes these data worse" in refiner.report.verdict
    value, error = refiner.report.gain("NLL")
    assert abs(value) < max(3 * error, 0.01)  # it left the network alone
    assert refiner.weights.scales[0] == pytest.approx(1, abs=0.1)


def test_the_scale_is_that_of_logistic_regression() -> None:
    """Labels drawn from softmax(0.5 · logits): the slope is 0.5 within five standard errors."""
    logits, labels = honest_noise()
    scale = fit_scale(examples(None, 2 * logits, labels), 0)
    margin, p = (2 * logits[..., 1] - 2 * logits[..., 0]).ravel(), softmax(logits)[..., 1].ravel()
    assert scale == pytest.approx(0.5, abs=5 / np.sqrt((p * (1 - p) * margin**2).sum()))


def test_coarse_logits_learn_to_be_guided() -> None:
    labels = regions().repeat(2, axis=1).repeat(2, axis=2)
    coarse = noisy(labels, 0.3).reshape(N, H // 4, 8, W // 4, 8, 2).mean(axis=(2, 4))
    weights = learn(examples(labels * 1.0, coarse, labels), "likelihood", 0)
    assert weights.strides.tolist() == [8]
    assert weights.guided[0] > 0.1


def test_without_images_neighbours_count_alike() -> None:
    labels = regions()
    weights = learn(examples(None, noisy(labels, 1.0), labels), "likelihood", 0)
    assert weights.pairwise[..., 0].max() > 0.2
    assert (weights.pairwise[..., 1] == 0).all()


def test_the_area_objective_finds_what_pixels_err_by_together() -> None:
    """In whole images one label is too likely or too unlikely: pixels by themselves know nothing of that."""
    labels = regions()
    rng = np.random.default_rng(5)
    logits = noisy(labels, 1.0) + rng.normal(size=(N, 1, 1, 1)) * [-0.7, 0.7]
    given = examples(labels * 1.0 + rng.normal(size=labels.shape), logits, labels)
    plain, wide = (learn(given, objective, 0) for objective in ("likelihood", "area"))
    prepared = [[prepare(example, weights) for example in given] for weights in (plain, wide)]
    losses = [
        np.mean([crps(sampled_fractions(each, 60, 7), truth).mean() for each, truth in some]) for some in prepared
    ]
    assert plain.shared == 0
    assert 0.5 <= wide.shared[0] <= 1.5  # a difference of labels of 1.4 is one of √2 · 1
    assert losses[1] < 0.9 * losses[0]


def test_the_area_objective_learns_when_a_label_is_absent() -> None:
    """A third label that half of the images lack and that is given a little everywhere: then 0 is in its interval."""
    rng, n = np.random.default_rng(3), 24
    labels = np.repeat(regions(), 3, axis=0)
    labels[: n // 2, :6, :8] = 2
    logits = 4 * np.eye(3)[labels] - [0, 0, 0.5] + rng.normal(size=(n, 1, 1, 3)) * 0.3
    given = examples(None, logits, labels)
    plain = Weights([1.0], [1.0])
    weights = fit_areas(plain, given, 0)
    half, steepness = weights.presence_at(1.0)
    assert 0 < half < 6 * 8 / (H * W)
    assert steepness > 1
    held: dict[str, list[bool]] = {"plain": [], "learned": []}
    for example in given[n // 2 :]:
        for name, which in (("plain", replace(weights, presence=0.0)), ("learned", weights)):
            low = np.quantile(sampled_fractions(prepare(example, which)[0], 60, 5), 0.05, axis=0)
            held[name].append(bool(low[2] == 0))
    assert np.mean(held["plain"]) < 0.2
    assert np.mean(held["learned"]) > 0.9


def test_presence_is_fitted_to_its_own_law() -> None:
    rng = np.random.default_rng(0)
    fractions = 10 ** rng.uniform(-4, 0, 4000)
    odds = (fractions / 0.03) ** 1.5
    half, steepness = fit_presence(fractions, rng.random(4000) < odds / (1 + odds))
    assert half == pytest.approx(0.03, rel=0.15)
    assert steepness == pytest.approx(1.5, rel=0.1)


def test_ignored_pixels_count_for_nothing() -> None:
    labels = regions()
    void = labels.copy()
    void[:, :6] = 255
    logits = noisy(labels, 1.0)
    wrong = logits.copy()
    wrong[:, :6] *= -1
    scales = []
    for scores in (logits, wrong):
        given = gather(None, scores, void, 255, "hwk", "logits", None)
        assert all((example.labels[:6] == -1).all() for example in given)
        scales.append(fit_scale(given, 0))
    assert scales[0] == scales[1]


def test_images_are_judged_by_weights_that_never_saw_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    judged: list[set[int]] = []
    zero = Weights([1.0], [1.0])

    def record_learning(some: list[Example], objective: str, seed: int) -> Weights:
        seen.append({id(example) for example in some})
        judged.append(set())
        return zero

    def record_judging(example: Example, weights: Weights, seed: int) -> Array:
        judged[-1].add(id(example))
        return softmax(example.scores)

    monkeypatch.setattr(crossvalidation, "learn", record_learning)
    monkeypatch.setattr(crossvalidation, "refined", record_judging)
    labels = regions()
    given = examples(None, noisy(labels, 1.0), labels)
    _, report = crossvalidation.cross_validated(given, "likelihood", 3, 0)
    everyone = {id(example) for example in given}
    assert (seen[0], judged[0]) == (everyone, set())  # the weights that are returned
    assert [fit | test for fit, test in zip(seen[1:], judged[1:], strict=True)] == [everyone] * 3
    assert not any(fit & test for fit, test in zip(seen[1:], judged[1:], strict=True))
    assert set().union(*judged) == everyone
    assert report.gain("NLL")[0] > 0  # nothing was learned, and the network was scaled


# scores


def test_scores_are_those_of_the_metrics() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(-1, 3, (4, 50))
    probability = softmax(rng.normal(size=(4, 50, 3)))
    whole = total([score(p, y) for p, y in zip(probability, truth, strict=True)])
    assert whole.nll == pytest.approx(metrics.negative_log_likelihood(probability, truth, ignore_label=-1))
    assert whole.ece == pytest.approx(metrics.expected_calibration_error(probability, truth, ignore_label=-1))
    expected = metrics.intersection_over_union(probability.argmax(-1), truth, 3, ignore_label=-1)
    assert whole.iou == pytest.approx(np.nanmean(expected))


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=30)
    zero = np.zeros((2, 2)), np.zeros((15, 2))
    new, old = ([Score(*zero, float(v), 1) for v in x] for x in (values, np.zeros(30)))
    value, error = difference(new, old, METRICS["NLL"])
    assert value == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(30))


def test_crps_of_a_normal_number() -> None:
    """E|X - y| - E|X - X'| / 2 of a standard normal X at y = 0: sqrt(2/π) - 1/sqrt(π)."""
    samples = np.random.default_rng(0).normal(size=(200_000, 1))
    expected = np.sqrt(2 / np.pi) - 1 / np.sqrt(np.pi)
    assert crps(samples, np.zeros(1))[0] == pytest.approx(expected, abs=0.005)
    few = np.random.default_rng(1).normal(size=(2, 100_000))
    assert crps(few, np.zeros(100_000)).mean() == pytest.approx(expected, abs=0.02)  # without bias, even from two


# bad input

LABELS = regions()
LOGITS = noisy(LABELS, 1.0)
IMAGES = LABELS * 1.0


@pytest.mark.parametrize(
    ("images", "logits", "labels", "options", "words"),
    [
        (IMAGES[:3], LOGITS, LABELS, {}, "images holds 3 entries, expected 8"),
        (IMAGES, LOGITS, LABELS[:3], {}, "labels holds 3 entries"),
        (IMAGES[:0], LOGITS[:0], LABELS[:0], {}, "logits is empty"),
        (IMAGES[:3], LOGITS[:3], LABELS[:3], {}, "3 images with labels, expected at least n_folds=5"),
        (IMAGES, LOGITS, LABELS + 1, {}, "labels.0. contains 2, expected 0 to 1 or ignore_label=-1"),
        (IMAGES, LOGITS, LABELS * 0 - 1, {}, "labels are all ignore_label"),
        (IMAGES, LOGITS, LABELS[:, :, :5], {}, "labels.0. has shape"),
        (IMAGES, LOGITS, LABELS, {"objective": "areas"}, "did you mean 'area'"),
        (IMAGES, LOGITS, LABELS, {"n_folds": 1}, "n_folds is 1"),
        (IMAGES, np.ma.masked_less(LOGITS, 0), LABELS, {}, "of image 0, logits is a masked array.*: call its filled"),
        (
            IMAGES,
            LOGITS,
            np.ma.masked_equal(LABELS, 1),
            {},
            "labels.0. is a masked array.*: mark void pixels by",
        ),
        (IMAGES, LOGITS, LABELS, {"seed": -1}, "seed is -1"),
        (list(IMAGES), [*LOGITS[:7], np.zeros((H, W, 3))], LABELS, {}, "from 2 to 3 labels"),
        (list(IMAGES), [*LOGITS[:7], LOGITS[7, ::4, ::4]], LABELS, {}, "strides range from 1 to 4"),
        (list(IMAGES), [*LOGITS[:7], LOGITS[7, :, :5]], LABELS, {}, "image 7: logits has shape"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    images: Any, logits: Any, labels: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        lp.Refiner.fit(images, logits, labels, layout="auto", **options)
    assert "\n" not in str(caught.value)


def test_wrong_types_are_named() -> None:
    with pytest.raises(InputTypeError, match="labels is a int"):
        lp.Refiner.fit(IMAGES, LOGITS, 3)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"stride": 0}, "stride is"), ({"stride": "8"}, "stride is"), ({"ignore_label": "255"}, "ignore")],
)
def test_odd_numbers_are_named(wrong: dict[str, Any], says: str) -> None:
    labels = regions()
    with pytest.raises((ValueError, TypeError), match=says):
        lp.Refiner.fit(None, noisy(labels, 1.0), labels, **wrong)


def test_units_of_the_logits_do_not_matter() -> None:
    labels = regions()
    logits = noisy(labels, 1.0)
    first, *others = (learn(examples(labels * 1.0, unit * logits, labels), "likelihood", 0) for unit in (1, 1e-4, 1e4))
    for unit, other in zip((1e-4, 1e4), others, strict=True):
        assert other.scales[0] * unit == pytest.approx(first.scales[0], rel=1e-3)
        assert [other.own[0], other.guided[0]] == pytest.approx([first.own[0], first.guided[0]], rel=0.02)


def test_without_images_the_scale_is_all_that_scores_have() -> None:
    labels = regions()
    weights = learn(examples(None, noisy(labels, 1.0), labels), "likelihood", 0)
    assert weights.pairwise.any()
    assert (weights.own[0], weights.guided[0]) == (1, 0)
    assert weights.scales[0] != pytest.approx(fit_scale(examples(None, noisy(labels, 1.0), labels), 0), rel=0.02)


def test_images_of_one_row_can_be_learned_from() -> None:
    labels = np.tile(np.repeat([0, 1], 20), (6, 1, 1))
    logits = noisy(labels, 1.0)
    refiner = lp.Refiner(learn(examples(labels * 9.0, logits, labels), "likelihood", 0))
    assert refiner.weights.scales[0] > 0
    right, alone = (
        np.mean([(found == truth).mean() for found, truth in zip(maps, labels, strict=True)])
        for maps in (
            [refiner(row, scores, layout="hwk").labels for row, scores in zip(labels * 9.0, logits, strict=True)],
            logits.argmax(-1),
        )
    )
    assert right > alone


def test_a_missing_image_is_named() -> None:
    labels = regions()
    with pytest.raises(InputError, match=r"images\[1\] is None"):
        lp.Refiner.fit([labels[0], None], noisy(labels, 1.0)[:2], labels[:2])
