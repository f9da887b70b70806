"""Fitting a refiner: the learned weights, and the cross-validation report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import locpmap as lp
from locpmap import metrics
from locpmap.errors import InputError, InputTypeError
from locpmap.formats import label_colours
from locpmap.learning import descent
from locpmap.learning.proper_scores import crps
from locpmap.refining import crossvalidation, fitting_samples
from locpmap.refining.examples import Example, gather
from locpmap.refining.fitting import fit_scale, learn
from locpmap.refining.fitting_samples import N_STEPS, START, SampleWeights
from locpmap.refining.guiding import guided_log_mean, guided_log_mean_at
from locpmap.refining.map_scores import mean_scores
from locpmap.refining.presence import fit_presence
from locpmap.refining.scoring import METRICS, Score, confusion, difference, near_boundary, score, softmax, total
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
N, H, W = 8, 24, 32


def regions(seed: int = 0) -> Array:
    """Return label maps (N, H, W) of two parts with a vertical boundary at a random column."""
    places = np.random.default_rng(seed).integers(8, W - 8, N)
    return np.stack([np.broadcast_to(np.arange(W) >= place, (H, W)) for place in places]).astype(int)


def noisy(labels: Array, noise: float, seed: int = 1) -> Array:
    return 2 * np.eye(2)[labels] + noise * np.random.default_rng(seed).normal(size=(*labels.shape, 2))


def calibrated_noise(seed: int = 2) -> tuple[Array, Array]:
    """Return logits and labels sampled from their softmax, so that no refinement can help."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(N, H, W, 2))
    return logits, (rng.random((N, H, W)) < softmax(logits)[..., 1]).astype(int)


def examples(images: Any, logits: Any, labels: Any, stride: float | None = None) -> list[Example]:
    return gather(images, logits, labels, -1, "hwk", "logits", stride)


@cache
def learned_from(kind: str) -> Weights:
    """Return weights learned without images from "regions", or from labels of "independent" pixels."""
    if kind == "independent":
        return learn(examples(None, *calibrated_noise()), 0)
    labels = regions()
    return learn(examples(None, noisy(labels, 1.0), labels), 0)


@pytest.fixture(scope="module")
def helped() -> lp.Refiner:
    labels = regions()
    return lp.Refiner.fit(labels * 200.0, noisy(labels, 1.0), labels, n_folds=2)


def test_report_states_that_refinement_helps(helped: lp.Refiner, tmp_path: Path) -> None:
    report = helped.report
    assert report is not None
    assert report.helps
    assert "Refinement helps these data" in str(report)
    assert "(IoU +" in report.verdict
    assert "uses pixels of similar colour. Factors per label did not help enough to be used." in str(report)
    assert report.value("refined", "IoU") > report.value("network", "IoU") + 0.1
    assert report.value("network, scaled", "IoU") == report.value("network", "IoU")
    assert helped.weights.guided.max() > 0.2
    helped.save(tmp_path / "mine.safetensors")
    again = lp.Refiner.load(tmp_path / "mine.safetensors")
    assert again.details["report"]["says"] == report.verdict
    np.testing.assert_array_equal(again.weights.pairwise, helped.weights.pairwise)


def test_report_holds_scores_of_samples(helped: lp.Refiner, tmp_path: Path) -> None:
    """Compare samples with independent pixels: they have the lower scores, and perimeters that are covered."""
    report = helped.report
    assert report is not None
    alone, whole = (report.to_dict()["samples"][row] for row in ("independent pixels", "samples"))
    assert all(whole["crps"][name] < alone["crps"][name] for name in ("area 8", "area whole", "perimeter"))
    assert whole["energy"] < alone["energy"]
    assert alone["coverage"]["perimeter"] == 0
    assert whole["coverage"]["perimeter"] > 0.25
    lines = str(report).splitlines()
    assert any(line.split() == ["CRPS", "area", "8", "area", "whole", "energy"] for line in lines)
    assert "area 32" not in str(report)  # larger than the images
    report.picture(tmp_path / "samples.png")
    with Image.open(tmp_path / "samples.png") as picture:
        assert picture.size == (4 * (5 * W + 8) - 8, 2 * (5 * H + 18) + 18)  # panels are enlarged five times
        pixels = np.asarray(picture)
    legend = {tuple(row) for row in pixels[-18:].reshape(-1, 3).tolist()}
    assert all(tuple(colour) in legend for colour in label_colours(2).tolist())
    panel = pixels[18 : 18 + 5 * H : 5, 3 * (5 * W + 8) :: 5]
    np.testing.assert_array_equal(panel, label_colours(2)[report.illustration.truth])


def test_progress_reaches_the_total_during_fits_and_scoring() -> None:
    calls: list[tuple[int, int, float]] = []
    labels = regions()
    fitted = lp.Refiner.fit(None, noisy(labels, 1.0), labels, progress=lambda *call: calls.append(call))
    steps = 3 * N_STEPS + N
    assert [call[:2] for call in calls] == [(n, steps) for n in range(1, steps + 1)]
    assert fitted.report is not None
    assert calls[-1][2] == pytest.approx(fitted.report.value("refined", "NLL"))
    with pytest.raises(InputTypeError, match="progress is 5, expected True, False or a function"):
        lp.Refiner.fit(None, noisy(labels, 1.0), labels, n_folds=2, progress=5)  # type: ignore[arg-type]


def test_report_states_that_refinement_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = calibrated_noise()
    images = np.random.default_rng(3).random((N, H, W, 3))  # colours without information
    refiner = lp.Refiner.fit(images, logits, labels, n_folds=2)
    assert refiner.report is not None
    assert not refiner.report.helps
    assert "does not help" in refiner.report.verdict or "of these data worse" in refiner.report.verdict
    assert "and pixels of similar colour did not help enough to be used." in str(refiner.report)
    for copies, few in ((1, True), (3, False)):  # 8 and 24 images
        report = replace(refiner.report, scores={row: copies * one for row, one in refiner.report.scores.items()})
        assert ("\n8 images are few: 20 or more are needed" in str(report)) == few
    covered = mean_scores(refiner.report.maps["samples"])["coverage"]
    least = min(covered, key=covered.__getitem__)
    for reliable, low in ((covered[least], False), (covered[least] + 1e-9, True)):
        monkeypatch.setattr("locpmap.refining.report.RELIABLE", reliable)
        assert (f"Intervals of {least}" in str(refiner.report)) == low
    value, error = refiner.report.gain("NLL")
    assert abs(value) < max(3 * error, 0.01)  # the network's prediction is almost unchanged
    assert refiner.weights.scales[0] == pytest.approx(1, abs=0.1)


def test_scale_matches_logistic_regression() -> None:
    """Fit labels sampled from softmax(0.5 · logits): the scale is 0.5 within five standard errors."""
    logits, labels = calibrated_noise()
    scale = fit_scale(examples(None, 2 * logits, labels), 0)
    margin, p = (2 * logits[..., 1] - 2 * logits[..., 0]).ravel(), softmax(logits)[..., 1].ravel()
    assert scale == pytest.approx(0.5, abs=5 / np.sqrt((p * (1 - p) * margin**2).sum()))


def test_coarse_logits_get_a_positive_guided_weight() -> None:
    labels = regions().repeat(2, axis=1).repeat(2, axis=2)
    coarse = noisy(labels, 0.3).reshape(N, H // 4, 8, W // 4, 8, 2).mean(axis=(2, 4))
    weights = learn(examples(labels * 1.0, coarse, labels), 0)
    assert weights.strides.tolist() == [8]
    assert weights.guided[0] > 0.1


def test_without_images_only_the_constant_potts_weight_is_learned() -> None:
    labels = regions()
    given = examples(None, noisy(labels, 1.0), labels)
    weights = learned_from("regions")
    assert weights.pairwise[..., 0].min() > 0.2
    assert (weights.pairwise[..., 1] == 0).all()
    assert (weights.own[0], weights.guided[0]) == (1, 0)
    assert weights.scales[0] == fit_scale(given, 0)


@pytest.mark.parametrize(("drawn", "start"), [(0.2, 1.0), (1.0, 0.2)])
def test_fit_finds_the_size_of_the_errors(drawn: float, start: float) -> None:
    """Draw labels from a model with the usual fields times a factor, and start the fit at those times another."""
    logits = np.random.default_rng(0).normal(size=(24, 2 * H, 2 * W, 2))
    fields = lp.ErrorFields(drawn * np.array(START.sizes), shared=drawn * START.shared)
    decoder = lp.LocPMAP(1, start="perturbed", keep_samples=True, fields=fields)
    labels = lp.infer(lp.Potentials.grid(logits, 0.0), decoder).samples[0]
    prior, losses = SampleWeights(tuple(start * np.array(START.sizes)), start * START.shared, 0.01, 1.0), list[float]()
    found = SampleWeights.at(learn(examples(None, logits, labels), 0, prior, progress=losses.append), 1.0)
    assert losses == sorted(losses, reverse=True)
    size_of_prior, size = (np.linalg.norm([*weights.sizes, weights.shared]) for weights in (prior, found))
    assert abs(np.log(size / size_of_prior * start / drawn)) < 0.5 * np.log(5)  # closer to those of the model


def test_fit_finds_errors_of_small_regions() -> None:
    """Draw labels from a model whose errors are regions of some pixels; at the start, most errors are shared by all."""
    logits = np.random.default_rng(0).normal(size=(40, H, W, 2))
    decoder = lp.LocPMAP(1, start="perturbed", keep_samples=True, fields=lp.ErrorFields((2.0, 1.0)))
    drawn = lp.infer(lp.Potentials.grid(logits, 0.0), decoder)
    found = SampleWeights.at(learn(examples(None, logits, drawn.samples[0]), 0), 1.0)
    assert found.sizes[0] > 3 * START.sizes[0]
    assert found.shared < 0.1 * START.shared


def test_weight_of_samples_in_the_probability_is_learned() -> None:
    """Use labels of independent pixels, where smooth samples do not help, and regions, where they do."""
    found = [learned_from(kind).votes[0] for kind in ("independent", "regions")]
    assert found[0] < 0.3
    assert found[1] > 0.6


def test_coupling_is_left_out_if_samples_are_better_without_it() -> None:
    """Use labels of independent pixels, and regions."""
    found = [learned_from(kind) for kind in ("independent", "regions")]
    assert found[0].pairwise.max() == 0
    assert found[1].pairwise.max() > 1


def test_coupling_is_left_out_if_it_removes_thin_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = np.broadcast_to((np.arange(W) % 6 == 0).astype(int), (N, H, W))
    found = {}
    for name, labels in (("lines", lines), ("regions", regions())):
        given = examples(None, noisy(labels, 1.0), labels)
        trials = [fitting_samples.Trial.of(one, Weights([1.0], [1.0]), n, 0) for n, one in enumerate(given)]
        tables = [trial.near_boundaries(4.0) for trial in trials]
        for trial, (coupled, alone) in zip(trials, tables, strict=True):
            near = near_boundary(trial.truth.map, 2)
            expected = confusion(given[trial.number].scores.argmax(-1)[near], trial.truth.map[near], 2)
            np.testing.assert_array_equal(alone, expected)
            assert coupled.sum() == alone.sum()
        found[name] = fitting_samples.keeps_boundaries(tables, [one.group for one in given])
    assert found == {"lines": False, "regions": True}
    monkeypatch.setattr(fitting_samples, "keeps_boundaries", lambda *_: False)
    assert learn(given, 0).pairwise.max() == 0  # regions, where samples are better with coupling


def test_penalty_keeps_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = regions()
    given = examples(None, noisy(labels, 1.0), labels)
    free = SampleWeights.at(learned_from("regions"), 1.0)
    monkeypatch.setattr(descent, "SHRINKAGE", 1000.0)
    assert SampleWeights.at(learn(given, 0), 1.0) == START
    assert free != START


def test_weights_of_samples_are_those_of_a_refiner() -> None:
    pairwise = np.array([[[0.0, 3.0], [0.0, 3.0]]])
    weights = Weights([1.0], [1.0], pairwise=pairwise, shared=0.2, sizes=[START.sizes], noise=0.3)
    found = SampleWeights.at(weights, 1.0)
    assert found == SampleWeights(START.sizes, 0.2, 3.0, 0.3)
    np.testing.assert_allclose(found.moved(np.log([2.0] * 8)).sizes, 2 * np.array(START.sizes))


def test_guided_mean_at_pixels_matches_that_of_the_image() -> None:
    rng = np.random.default_rng(0)
    scores, image = rng.normal(size=(70, 90, 3)), rng.random((3, 70, 90))
    places = rng.permutation(70 * 90)[:500]
    expected = guided_log_mean(scores[None], image[None])[0].reshape(-1, 3)[places]
    np.testing.assert_allclose(guided_log_mean_at(scores, image, places), expected, rtol=1e-6)


def test_labels_that_never_occur_are_learned_as_absent() -> None:
    """Add a label that no image has, but that independent pixels of the network would show."""
    labels = regions()
    logits = np.concatenate([noisy(labels, 0.5), np.full((N, H, W, 1), 1.0)], axis=-1)
    refiner = lp.Refiner(learn(examples(None, logits, labels), 0))
    presence = refiner.prepare(None, logits[0], layout="hwk").fields.presence
    assert presence is not None
    assert presence[0, 2] < 0.1
    assert presence[0, :2].min() > 0.9
    measured = refiner.measure(None, logits[0], "presence", lp.LocPMAP(40, start="perturbed"), layout="hwk")
    assert measured.mean[2] < 0.1


def test_presence_parameters_are_recovered() -> None:
    rng = np.random.default_rng(0)
    fractions = 10 ** rng.uniform(-4, 0, 4000)
    odds = (fractions / 0.03) ** 1.5
    half, steepness = fit_presence(fractions, rng.random(4000) < odds / (1 + odds))
    assert half == pytest.approx(0.03, rel=0.15)
    assert steepness == pytest.approx(1.5, rel=0.1)


def test_ignored_pixels_do_not_change_the_scale() -> None:
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


@pytest.mark.parametrize(("n_images", "n_folds", "n_sampled"), [(N, 3, N), (4 * N, 3, 24), (4 * N, 30, 24)])
def test_images_are_scored_with_weights_learned_without_them(
    n_images: int, n_folds: int, n_sampled: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained_on: list[set[int]] = []
    scored: list[set[int]] = []
    zero = Weights([1.0], [1.0])

    def record_learning(some: list[Example], *args: Any, **options: Any) -> Weights:
        trained_on.append({id(example) for example in some})
        scored.append(set())
        return zero

    def record_scoring(example: Example, weights: Weights, seed: int, *, sampled: bool) -> Any:
        scored[-1].add(id(example))
        return held_out(example, weights, seed, sampled=sampled)

    held_out = crossvalidation.held_out
    monkeypatch.setattr(crossvalidation, "learn", record_learning)
    monkeypatch.setattr(crossvalidation, "held_out", record_scoring)
    labels = np.concatenate([regions(seed) for seed in range(n_images // N)])
    given = examples(None, noisy(labels, 1.0), labels)
    _, report = crossvalidation.cross_validated(given, n_folds, 0)
    all_examples = {id(example) for example in given}
    assert (trained_on[0], scored[0]) == (all_examples, set())  # the fit to all examples, which is returned
    assert [fit | test for fit, test in zip(trained_on[1:], scored[1:], strict=True)] == [all_examples] * n_folds
    assert not any(fit & test for fit, test in zip(trained_on[1:], scored[1:], strict=True))
    assert set().union(*scored) == all_examples
    assert (len(report.scores["refined"]), len(report.maps["samples"])) == (n_images, n_sampled)
    lp.Refiner(zero, {"report": report.to_dict()}).save(tmp_path / "mine.safetensors")  # which cannot hold NaN


# scores


def test_scores_match_the_metrics_module() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(-1, 3, (4, 50))
    probability = softmax(rng.normal(size=(4, 50, 3)))
    whole = total([score(p, y) for p, y in zip(probability, truth, strict=True)])
    assert whole.nll == pytest.approx(metrics.negative_log_likelihood(probability, truth, ignore_label=-1))
    assert whole.ece == pytest.approx(metrics.expected_calibration_error(probability, truth, ignore_label=-1))
    expected = metrics.intersection_over_union(probability.argmax(-1), truth, 3, ignore_label=-1)
    assert whole.iou == pytest.approx(np.nanmean(expected))


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=30)
    zero = np.zeros((2, 2)), np.zeros((15, 2))
    new, old = ([Score(*zero, float(v), 1) for v in x] for x in (values, np.zeros(30)))
    value, error = difference(new, old, METRICS["NLL"])
    assert value == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(30))


def test_crps_of_a_standard_normal() -> None:
    """Compare with E|X - y| - E|X - X'| / 2 = sqrt(2/π) - 1/sqrt(π) at y = 0."""
    samples = np.random.default_rng(0).normal(size=(200_000, 1))
    expected = np.sqrt(2 / np.pi) - 1 / np.sqrt(np.pi)
    assert crps(samples, np.zeros(1))[0] == pytest.approx(expected, abs=0.005)
    few = np.random.default_rng(1).normal(size=(2, 100_000))
    assert crps(few, np.zeros(100_000)).mean() == pytest.approx(expected, abs=0.02)  # unbiased, even with two samples


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
        (IMAGES[:1], LOGITS[:1], LABELS[:1], {}, "number of images with labels is 1, expected at least n_folds=2"),
        (
            IMAGES[:3],
            LOGITS[:3],
            LABELS[:3],
            {"n_folds": 5},
            "number of images with labels is 3, expected at least n_folds=5",
        ),
        (IMAGES, LOGITS * np.nan, LABELS, {}, "image 0: logits contains nan"),
        (IMAGES, LOGITS, LABELS + 1, {}, "labels.0. contains 2, expected 0 to 1 or ignore_label=-1"),
        (IMAGES, LOGITS, LABELS * 0 - 1, {}, "labels are all ignore_label"),
        (IMAGES, LOGITS, LABELS[:, :, :5], {}, "labels.0. has shape"),
        (IMAGES, LOGITS, LABELS, {"n_folds": 1}, "n_folds is 1"),
        (IMAGES, np.ma.masked_less(LOGITS, 0), LABELS, {}, "image 0: logits is a masked array.*: call its filled"),
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
def test_bad_input_raises_a_one_line_error(
    images: Any, logits: Any, labels: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        lp.Refiner.fit(images, logits, labels, layout="auto", **options)
    assert "\n" not in str(caught.value)


def test_wrong_types_are_refused() -> None:
    with pytest.raises(InputTypeError, match="labels is a int"):
        lp.Refiner.fit(IMAGES, LOGITS, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"stride": 0}, "stride is"), ({"stride": "8"}, "stride is"), ({"ignore_label": "255"}, "ignore")],
)
def test_invalid_numbers_are_refused(wrong: dict[str, Any], message: str) -> None:
    labels = regions()
    with pytest.raises((ValueError, TypeError), match=message):
        lp.Refiner.fit(None, noisy(labels, 1.0), labels, **wrong)


def test_fit_does_not_depend_on_the_units_of_the_logits() -> None:
    labels = regions()
    logits = noisy(labels, 1.0)
    first, *others = (learn(examples(labels * 1.0, unit * logits, labels), 0) for unit in (1, 1e-4, 1e4))
    for unit, other in zip((1e-4, 1e4), others, strict=True):
        assert other.scales[0] * unit == pytest.approx(first.scales[0], rel=1e-3)
        assert [other.own[0], other.guided[0]] == pytest.approx([first.own[0], first.guided[0]], rel=0.02)


def test_fit_accepts_images_of_one_row() -> None:
    labels = np.tile(np.repeat([0, 1], 20), (6, 1, 1))
    logits = noisy(labels, 1.0)
    refiner = lp.Refiner(learn(examples(labels * 9.0, logits, labels), 0))
    assert refiner.weights.scales[0] > 0
    right, alone = (
        np.mean([(found == truth).mean() for found, truth in zip(maps, labels, strict=True)])
        for maps in (
            [refiner(row, scores, layout="hwk").labels for row, scores in zip(labels * 9.0, logits, strict=True)],
            logits.argmax(-1),
        )
    )
    assert right > alone


def test_missing_image_is_refused() -> None:
    labels = regions()
    with pytest.raises(InputError, match=r"images\[1\] is None"):
        lp.Refiner.fit([labels[0], None], noisy(labels, 1.0)[:2], labels[:2])
