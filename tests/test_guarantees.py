"""Guarantees cover new images as often as promised, on simulated exchangeable images, and say when they cannot."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputTypeError
from locpmap.guarantees import Guarantee, Source
from locpmap.guarantees.conformal import conformal_quantile, controlled, controlled_quantile, images_needed
from locpmap.guarantees.intervals import FLOOR, N_SAMPLES, Calibration, Moments, _factor
from locpmap.guarantees.thresholds import THRESHOLDS, label_sets, pixel_losses
from locpmap.refining import draw, interval_of
from locpmap.refining.examples import gather
from locpmap.refining.guaranteeing import source_of
from locpmap.refining.weights import Weights

LEVEL = 0.9


def binomial(n: int) -> float:
    """Return three standard errors of a frequency of 0.9."""
    return 3 * float(np.sqrt(LEVEL * (1 - LEVEL) / n))


def drawn(rng: np.random.Generator, n: int, kind: str) -> tuple[Moments, np.ndarray]:
    """Draw n images with 3 entries: the spreads differ by image and are wrong by a factor that differs by entry."""
    std = rng.gamma(2.0, size=(n, 3)) * [1.0, 10.0, 100.0]
    mean = rng.normal(size=(n, 3)) * [10.0, 100.0, 1000.0]
    truth = mean + [0.5, 1.0, 3.0] * std * rng.standard_t(3, size=(n, 3))
    if kind == "ties":
        mean, truth = mean.round(-1), truth.round(-1)
    if kind == "absent":  # the third entry is absent from two thirds of the images, and sometimes missed
        absent = rng.random(n) < 2 / 3
        mean[absent, 2], std[absent, 2] = 0.0, 0.0
        truth[absent, 2] = np.where(rng.random(absent.sum()) < 0.05, 40.0, 0.0)
    if kind == "rare":  # an entry that seldom varies and is then hard, alone so that no other one widens its intervals
        there = rng.random((n, 1)) < 0.12
        std, mean = np.where(there, std[:, :1], 0.0), np.where(there, mean[:, :1], 0.0)
        truth = mean + np.where(there, 100.0, 1.0) * rng.normal(size=(n, 1))
    return Moments(mean, std), truth


@pytest.mark.parametrize("kind", ["plain", "ties", "absent", "rare"])
@pytest.mark.parametrize("n", [9, 12, 60])
@pytest.mark.parametrize("jointly", [False, True])
def test_intervals_cover_exchangeable_images(kind: str, n: int, jointly: bool) -> None:
    rng, trials, covered = np.random.default_rng(n), 700, []
    for _ in range(trials):
        moments, truth = drawn(rng, n + 1, kind)
        calibration = Calibration(Moments(moments.mean[:n], moments.std[:n]), truth[:n])
        low, high = calibration.interval(Moments(moments.mean[n], moments.std[n]), LEVEL, jointly)
        covered.append((low <= truth[n]) & (truth[n] <= high))
    inside = np.stack(covered)
    per_entry = inside.all(axis=1, keepdims=True) if jointly else inside
    assert (per_entry.mean(axis=0) >= LEVEL - binomial(trials)).all(), per_entry.mean(axis=0)
    if kind == "plain":  # not wider than the number of images requires
        assert (per_entry.mean(axis=0) <= LEVEL + 1 / (n + 1) + binomial(trials)).all(), per_entry.mean(axis=0)


def test_coverage_is_lost_if_the_model_saw_the_calibration_images() -> None:
    """A fit that shrinks the errors of calibration images by a half, as if it had seen them, breaks the guarantee."""
    rng, covered = np.random.default_rng(0), []
    for _ in range(300):
        moments, truth = drawn(rng, 41, "plain")
        seen = moments.mean[:40] + 0.5 * (truth[:40] - moments.mean[:40])
        calibration = Calibration(Moments(moments.mean[:40], moments.std[:40]), seen)
        low, high = calibration.interval(Moments(moments.mean[40], moments.std[40]), LEVEL, False)
        covered.append((low <= truth[40]) & (truth[40] <= high))
    assert np.mean(covered) < LEVEL - binomial(300)


def test_intervals_do_not_depend_on_the_unit_of_a_quantity() -> None:
    moments, truth = drawn(np.random.default_rng(0), 31, "plain")
    found = []
    for unit in (1.0, 1e-3):
        rest = Moments(unit * moments.mean[:30], unit * moments.std[:30])
        new = Moments(unit * moments.mean[30], unit * moments.std[30])
        found.append(np.array(Calibration(rest, unit * truth[:30]).interval(new, LEVEL, False)) / unit)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_rare_label_uses_the_other_labels() -> None:
    """A label that varies in two images has the factor of all labels if that of its own images is smaller."""
    rng = np.random.default_rng(0)
    std = np.ones((40, 2))
    std[2:, 1] = 0
    truth = np.where(std > 0, rng.normal(size=(40, 2)) * 5, 0.0)
    calibration = Calibration(Moments(np.zeros((40, 2)), std), truth)
    low, high = calibration.interval(Moments(np.zeros(2), np.ones(2)), LEVEL, False)
    assert high[1] >= 0.9 * high[0] > 5
    np.testing.assert_array_equal(low, -high)


def test_conformal_quantile_matches_its_definition() -> None:
    scores = np.random.default_rng(0).normal(size=200)
    for n in range(9, 200):
        rank = int(np.ceil(round((n + 1) * LEVEL, 9)))
        assert conformal_quantile(scores[:n], LEVEL) == np.sort(scores[:n])[rank - 1]
    assert [images_needed(level) for level in (0.5, 0.8, 0.9, 0.95, 0.99)] == [1, 4, 9, 19, 99]


def test_controlled_quantile_is_the_smallest_one_that_controls_the_loss() -> None:
    rng = np.random.default_rng(1)
    scores, varies = rng.normal(size=(30, 4)), rng.random((30, 4)) < 0.6
    weights = varies / np.maximum(varies.sum(axis=1, keepdims=True), 1)
    found = controlled_quantile(scores, weights, LEVEL)

    def bound(q: float) -> float:
        return ((weights * (scores > q)).sum() + 1) / 31

    assert bound(found) <= 1 - LEVEL < bound(np.nextafter(found, -np.inf))


def test_bound_of_the_expected_loss_is_that_of_one_more_image_with_loss_1() -> None:
    largest = (0.1 * 20 - 1) / 19  # of 19 images
    assert controlled(np.array([largest, largest + 1e-6]), 19, 0.1).tolist() == [True, False]


def test_floor_of_the_spread_counts_the_new_image() -> None:
    """Only the new image varies: the floor is a fraction of its own standard deviation, for the scores as well."""
    truth = np.arange(12.0)[:, None]
    calibration = Calibration(Moments(np.zeros((12, 1)), np.zeros((12, 1))), truth)
    low, high = calibration.interval(Moments(np.zeros(1), np.array([5.0])), LEVEL, False)
    floor = FLOOR * 5.0
    np.testing.assert_allclose(high, 11.0 / floor * (5.0 + floor))  # the 12th of 12 scores
    assert 0.1 < FLOOR < 1
    np.testing.assert_array_equal(low, -high)


def test_labels_at_the_threshold_belong_to_sets_and_are_decided() -> None:
    losses = (THRESHOLDS > 0.5).astype(float), (THRESHOLDS < 0.5).astype(float)
    guarantee = Guarantee({}, *losses, 19, Source("", 2))
    assert guarantee.set_threshold(LEVEL) == guarantee.abstention_threshold(0.1) == 0.5
    result = replace(lp.infer(lp.Potentials.grid(np.zeros((2, 3, 2)), 0.0), "exact"), source=guarantee.source)
    assert result.label_sets(LEVEL, guarantee=guarantee).all()
    assert (result.decide("accuracy", abstain=0.1, guarantee=guarantee).labels == 0).all()


def pixels(rng: np.random.Generator, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities (n, 4) that are overconfident by a factor that differs by image, and true labels."""
    logits = rng.normal(size=(n, 4)) * 2
    true = (logits / rng.uniform(1, 4) + rng.gumbel(size=(n, 4))).argmax(axis=1)
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), true


def test_label_sets_and_abstention_control_the_mean_loss_of_new_images() -> None:
    rng, missed, wrong = np.random.default_rng(0), [], []
    for _ in range(150):
        losses = [pixel_losses(*pixels(rng)) for _ in range(20)]
        misses, errors = (np.mean(part, axis=0) for part in zip(*losses, strict=True))
        p, true = pixels(rng)
        guarantee = Guarantee({}, misses, errors, 20, Source("", 4))
        inside = p >= guarantee.set_threshold(LEVEL)
        missed.append(1 - inside[np.arange(len(p)), true].mean())
        decided = p.max(axis=1) >= guarantee.abstention_threshold(0.2)
        wrong.append((decided & (p.argmax(axis=1) != true)).mean())
    for loss, limit in ((missed, 1 - LEVEL), (wrong, 0.2)):
        error = np.std(loss) / np.sqrt(len(loss))
        assert np.mean(loss) <= limit + 3 * error
        assert np.mean(loss) >= limit - 1 / 21 - 0.02 - 3 * error  # the bound and the thresholds are not far away


def test_pixel_losses_match_their_definition() -> None:
    p, true = pixels(np.random.default_rng(2), 50)
    misses, errors = pixel_losses(p, true)
    for threshold, miss, error in zip(THRESHOLDS, misses, errors, strict=True):
        assert miss == (p[np.arange(50), true] < threshold).mean()
        assert error == ((p.max(axis=1) >= threshold) & (p.argmax(axis=1) != true)).mean()


def test_label_sets_are_the_smallest_ones() -> None:
    p, _ = pixels(np.random.default_rng(3))
    found = label_sets(p, 0.8)
    for row, chosen in zip(p, found, strict=True):
        assert row[chosen].sum() >= 0.8 - 1e-9
        assert row[chosen].min() >= row[~chosen].max(initial=0)
        assert row[chosen].sum() - row[chosen].min() < 0.8


STRIDED = (4, 6, 6), (4, 6, 6), (4, 5, 5)  # shapes of scores


def scenes(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (n, 12, 12, 3) and labels with a void corner."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.repeat(rng.integers(0, 3, (n, 3, 3)), 4, axis=1), 4, axis=2)
    logits = 2 * np.eye(3)[labels] + rng.normal(size=(n, 12, 12, 3))
    labels[:, 0, 0] = -1
    return logits, labels


@pytest.fixture(scope="module")
def guaranteed() -> lp.Refiner:
    return lp.Refiner.load().guaranteed(None, *scenes(12), ["area", "perimeter", left_half])


def promise(refiner: lp.Refiner) -> Guarantee:
    """Return the guarantee of a refiner that has one."""
    assert refiner.guarantee is not None
    return refiner.guarantee


def left_half(labels: np.ndarray) -> float:
    """Return the number of pixels with label 1 in the left half."""
    return float((labels[:, :6] == 1).sum())


def test_guarantee_is_saved_and_loaded(guaranteed: lp.Refiner, tmp_path: Path) -> None:
    guaranteed.save(tmp_path / "mine.safetensors")
    loaded = lp.Refiner.load(tmp_path / "mine.safetensors")
    assert repr(loaded) == repr(guaranteed)
    assert "guarantee from 12 images" in repr(loaded)
    assert repr(promise(loaded)) == "<Guarantee from 12 images: area, left_half, perimeter>"
    assert str(loaded.guarantee) == str(guaranteed.guarantee)
    area = loaded.measure(None, scenes(1, 1)[0][0], "area")
    found = [area.interval(guarantee=refiner) for refiner in (guaranteed, loaded)]
    np.testing.assert_array_equal(found[0], found[1])


def test_intervals_of_a_measurement_and_of_its_first_samples_are_equal(guaranteed: lp.Refiner) -> None:
    logits = scenes(1, 1)[0][0]
    prepared = guaranteed.prepare(None, logits)
    few, many = (prepared.measure("area", lp.LocPMAP(m, start="perturbed")) for m in (N_SAMPLES, 3 * N_SAMPLES))
    np.testing.assert_array_equal(few.interval(guarantee=guaranteed), many.interval(guarantee=guaranteed))
    low, high = few.interval(guarantee=guaranteed)
    assert ((low >= 0) & (low < few.mean) & (few.mean < high) & (high <= 144)).all()
    wide = few.interval(guarantee=guaranteed, jointly=True)
    assert ((wide[0] <= low) & (high <= wide[1])).all()
    own = prepared.measure(left_half).interval(0.8, guarantee=guaranteed)
    assert own[0].shape == (1,)


@pytest.mark.parametrize(("n_others", "alone"), [(0, True), (9, False), (10, True)])
def test_both_groups_need_enough_images_with_the_new_one_in_either(n_others: int, alone: bool) -> None:
    """At 0.9, nine images are needed; the group without the new image must have one more."""
    scores = np.concatenate([np.full(9, 1.0), np.full(n_others, 2.0)])
    assert _factor(scores, scores == 1, 3.0, LEVEL) == (1.0 if alone else 3.0)


def test_levels_that_rounding_represents_badly() -> None:
    """At level 14/25, the 14th of 24 scores and the new one is needed, although 0.56 · 25 is computed as 14.0..02."""
    assert conformal_quantile(np.arange(1.0, 25.0), 0.56) == 14
    assert images_needed(1 - 1e-17) > 1e9
    assert label_sets(np.array([0.6, 0.4]), 1e-10).tolist() == [True, False]


def test_intervals_end_at_possible_values(guaranteed: lp.Refiner) -> None:
    few = lp.Measurement("area", np.random.default_rng(0).integers(0, 2, (50, 3)) + 0.0, ("0", "1", "2"), (0.5,))
    few = replace(few, source=promise(guaranteed).source)
    low, high = few.interval(guarantee=guaranteed)
    np.testing.assert_array_equal(low, 0)
    np.testing.assert_array_equal(high, few.values.sum(axis=1).max())


def test_other_kinds_of_input_have_no_guarantee(guaranteed: lp.Refiner, tmp_path: Path) -> None:
    """Coverage collapses where logits have another stride, or an image is missing or added."""
    logits, image = scenes(1)[0][0], np.zeros((12, 12))
    guaranteed.save(tmp_path / "mine.safetensors")
    coarse = logits.reshape(3, 4, 3, 4, 3).mean(axis=(1, 3))
    for refiner in (guaranteed, lp.Refiner.load(tmp_path / "mine.safetensors")):
        area = refiner.measure(image, coarse, "area", layout="hwk")
        with pytest.raises(lp.InputError, match="the logits have stride 4, and the guarantee holds for 1"):
            area.interval(guarantee=refiner)
        result = refiner.refine(image, logits, layout="hwk")
        added = "the input has an image, and the guarantee holds for inputs with no image"
        with pytest.raises(lp.InputError, match=added):
            result.label_sets(guarantee=refiner)
        with pytest.raises(lp.InputError, match=added):
            result.decide("accuracy", abstain=0.2, guarantee=refiner)
        resized = refiner.measure(None, logits, "area", stride=1.1)  # as large as rounding makes it
        assert resized.interval(guarantee=refiner)[0].shape == (3,)
        with pytest.raises(lp.InputError, match=r"the logits have stride 1\.3"):
            refiner.measure(None, logits, "area", stride=1.3).interval(guarantee=refiner)
        short = refiner.measure(None, logits, "area", lp.LocPMAP(start="perturbed", max_sweeps=1))
        with pytest.raises(lp.InputError, match="with its default decoder"):
            short.interval(guarantee=refiner)


def test_source_of_examples() -> None:
    """Strides may differ a little, and spacings by more: a guarantee holds in their range."""
    rng, labels = np.random.default_rng(0), np.zeros((4, 6, 6), np.int64)
    spacings = [(2.0, 1.0, 1.0), (1.0, 1.0, 1.0), (4.0, 1.0, 1.0)]
    volumes = gather(None, rng.normal(size=(3, 4, 6, 6, 2)), [labels] * 3, -1, "dhwk", "logits", None, spacings)
    known = source_of(volumes, "mine")
    assert known == Source("mine", 2, 1.0, False, (1.0, 1.0, 1.0), (4.0, 1.0, 1.0))
    assert Source.of_array("mine", known.array()) == known
    for sides, fits in (((0.9, 1, 1), True), ((4.5, 1, 1), True), ((0.8, 1, 1), False), ((2, 0.001, 0.001), False)):
        other = known._replace(least=sides, most=sides)
        with nullcontext() if fits else pytest.raises(lp.InputError, match="and the guarantee holds for 1 to 4, 1, 1"):
            known.check(other)
    image = Source("mine", 2, 1.0)
    with pytest.raises(lp.InputError, match="the input is an image, and the guarantee holds for volumes"):
        known.check(image)
    with pytest.raises(lp.InputError, match="the input is a volume, and the guarantee holds for images"):
        image.check(known)
    strided = [replace(volumes[0], given=replace(volumes[0].given, scores=np.zeros((1, *n, 2)))) for n in STRIDED]
    assert source_of(strided, "mine").stride == pytest.approx(1)


def test_guarantees_of_functions_know_the_number_of_labels() -> None:
    logits, labels = scenes(12)
    refiner = lp.Refiner.load().guaranteed(None, logits, labels, [left_half])
    with pytest.raises(lp.InputError, match="the result has 2 labels, expected 3 like the guarantee"):
        refiner.refine(None, logits[0][..., :2]).label_sets(guarantee=refiner)


def test_batch_has_the_intervals_of_its_images(guaranteed: lp.Refiner) -> None:
    logits = scenes(3, 1)[0]
    both = guaranteed.prepare(None, logits, layout="hwk").measure("area").interval(guarantee=guaranteed)
    one = guaranteed.prepare(None, logits[0], layout="hwk").measure("area").interval(guarantee=guaranteed)
    np.testing.assert_array_equal(np.array(both)[:, 0], one)


def test_void_pixels_are_masked(guaranteed: lp.Refiner) -> None:
    calibration = promise(guaranteed).quantities["area"]
    np.testing.assert_array_equal(calibration.truth.sum(axis=1), 143)
    np.testing.assert_allclose(calibration.moments.mean.sum(axis=1), 143)


def test_void_pixels_count_in_no_loss(guaranteed: lp.Refiner) -> None:
    wrong = []
    for logits, labels in zip(*scenes(12), strict=True):
        result = guaranteed.refine(None, logits, mask=labels < 0, decoder=lp.LocPMAP(N_SAMPLES, start="perturbed"))
        wrong.append((result.probability.argmax(axis=-1) != labels)[labels >= 0].mean())
    assert promise(guaranteed).errors[0] == pytest.approx(np.mean(wrong))


def test_label_sets_of_a_result(guaranteed: lp.Refiner) -> None:
    mask = np.zeros((12, 12), bool)
    mask[:2] = True
    result = guaranteed.refine(None, scenes(1, 1)[0][0], mask=mask)
    for found in (result.label_sets(0.7), result.label_sets(0.7, guarantee=guaranteed)):
        np.testing.assert_array_equal(found.any(axis=-1), ~mask)
        most_probable = result.probability.argmax(axis=-1)
        assert np.take_along_axis(found, most_probable[..., None], axis=-1)[~mask].all()
    guaranteed_sets = result.label_sets(0.7, guarantee=guaranteed)
    threshold = promise(guaranteed).set_threshold(0.7)
    assert (result.probability[guaranteed_sets] >= min(threshold, result.probability.max(axis=-1)[~mask].min())).all()


def test_abstention_leaves_out_labels_below_the_threshold(guaranteed: lp.Refiner) -> None:
    result = guaranteed.refine(None, scenes(1, 1)[0][0])
    decision = result.decide("accuracy", abstain=0.3, guarantee=guaranteed)
    largest = result.probability.max(axis=-1)
    kept = largest >= promise(guaranteed).abstention_threshold(0.3)
    np.testing.assert_array_equal(decision.labels, np.where(kept, result.probability.argmax(axis=-1), -1))
    assert decision.guaranteed == 0.3
    assert decision.kept == kept.mean()
    assert decision.risk == pytest.approx((1 - largest[kept]).mean())
    assert result.decide("accuracy", abstain=0.3).guaranteed is None
    for measure, abstain in (("accuracy", None), ("iou", 0.3)):
        with pytest.raises(lp.InputError, match='expected measure="accuracy" and a number as abstain'):
            result.decide(measure, abstain=abstain, guarantee=guaranteed)


def test_fit_sets_images_aside_and_knows_the_others() -> None:
    logits, labels = scenes(14)
    refiner = lp.Refiner.fit(None, logits, labels, guarantee=0.64)
    assert promise(refiner).n_images == 9
    assert len(refiner.details["fitted_on"]) == 5
    assert refiner.details["data"] == "5 images"
    with pytest.raises(lp.InputError, match="one of the images that the refiner was fitted on"):
        refiner.guaranteed(None, logits, labels)
    assert refiner.adjusted(smoothing=1.0).guarantee is None


def test_command_shows_guaranteed_intervals_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guaranteed = lp.Refiner.load().guaranteed(np.zeros((12, 12, 12, 3), np.uint8), *scenes(12), ["area"])
    logits = scenes(1, 1)[0][0]
    np.save(tmp_path / "logits.npy", logits)
    Image.fromarray(np.zeros((12, 12, 3), np.uint8)).save(tmp_path / "image.png")
    guaranteed.save(tmp_path / "mine.safetensors")
    inputs = [str(tmp_path / "image.png"), str(tmp_path / "logits.npy"), "-o", str(tmp_path / "out")]
    others = (["--n-samples", "49"], ["--smoothing", "1"], ["--blocks", "rows"])
    for extra, promised in (([], True), *((each, False) for each in others)):
        run = Run(capsys, "refine", *inputs, "--model", tmp_path / "mine.safetensors", *extra)
        assert run.status == 0
        assert ("90% interval, guaranteed" in run.out) == promised
        record = json.loads((tmp_path / "out/image.json").read_text())
        assert record["guaranteed"] == promised
        assert (record["level"], record["calibration_images"]) == (LEVEL, 12 if promised else None)
        if promised:
            image = np.zeros((12, 12, 3), np.uint8)
            areas = guaranteed.prepare(image, logits).measure("area", lp.LocPMAP(50, start="perturbed"))
            low, high = areas.interval(guarantee=guaranteed)
            expected = [[low[row["label"]], high[row["label"]]] for row in record["labels"]]
            np.testing.assert_allclose([row["interval"] for row in record["labels"]], expected)


def test_results_of_other_models_are_refused(guaranteed: lp.Refiner) -> None:
    logits = scenes(1, 1)[0][0]
    model, rows = lp.Potentials.grid(logits, 0.0), lp.LocPMAP(blocks="rows", start="perturbed")
    others = [
        lp.measure(model, "area"),
        guaranteed.adjusted(smoothing=1.0).measure(None, logits, "area"),
        guaranteed.measure(None, logits, "area", rows),
    ]
    for measurement in others:
        with pytest.raises(lp.InputError, match="guarantee is one of another model"):
            measurement.interval(guarantee=guaranteed)
    results = [
        lp.infer(model, "mean_field"),
        guaranteed.adjusted(temperature=2.0).refine(None, logits),
        guaranteed.refine(None, logits, decoder=rows),
        guaranteed.refine(None, logits, decoder=lp.LocPMAP(20, start="perturbed")),
    ]
    for result in results:
        with pytest.raises(lp.InputError, match="guarantee is one of another model"):
            result.label_sets(guarantee=guaranteed)
        with pytest.raises(lp.InputError, match="guarantee is one of another model"):
            result.decide("accuracy", abstain=0.3, guarantee=guaranteed)
    kept = lp.LocPMAP(start="perturbed", keep_samples=True)
    measured = lp.measure(guaranteed.refine(None, logits, decoder=kept), "area")
    expected = guaranteed.measure(None, logits, "area").interval(guarantee=guaranteed)
    np.testing.assert_array_equal(measured.interval(guarantee=guaranteed), expected)


def test_refiner_without_error_fields_has_guarantees() -> None:
    logits, labels = scenes(12)
    refiner = lp.Refiner(Weights([1.0], [1.0])).guaranteed(None, logits, labels, ["area"])
    result = refiner.refine(None, logits[0])
    assert result.label_sets(guarantee=refiner).any(axis=-1).all()
    assert refiner.measure(None, logits[0], "area").interval(guarantee=refiner)[0].shape == (3,)


def test_function_without_a_name_of_its_own_is_refused() -> None:
    logits, labels = scenes(9)
    with pytest.raises(lp.InputError, match="a function called '<lambda>'"):
        lp.Refiner.load().guaranteed(None, logits, labels, [lambda labels: 1.0])


def test_tiles_of_one_raster_are_warned_of() -> None:
    raster, (logits, labels) = np.zeros((24, 72, 3), np.uint8), scenes(12)
    tiles = [raster[12 * (k // 6) :][:12, 12 * (k % 6) :][:, :12] for k in range(12)]
    with pytest.warns(UserWarning, match="tiles of a raster"):
        lp.Refiner.load().guaranteed(tiles, logits, labels, ["area"])


def test_batches_of_images_and_odd_quantities() -> None:
    logits, labels = scenes(12)
    plain = lp.Refiner.load()
    batch = np.zeros((12, 12, 12, 3), np.uint8)
    found = [promise(plain.guaranteed(each, logits, labels, ["area"])) for each in (batch, list(batch))]
    np.testing.assert_array_equal(found[0].quantities["area"].moments.mean, found[1].quantities["area"].moments.mean)

    def presence(labels: np.ndarray) -> float:
        return 100.0 * float((labels == 1).mean())

    def rows(labels: np.ndarray) -> np.ndarray:
        return np.zeros(len(labels))

    with pytest.raises(lp.InputError, match="a function called 'presence'"):
        plain.guaranteed(None, logits, labels, [presence])
    parts = [[array[n, : 12 - n % 2] for n in range(12)] for array in (logits, labels)]
    with pytest.raises(lp.InputError, match="rows has 11 to 12 entries, expected as many in every image"):
        plain.guaranteed(None, parts[0], parts[1], [rows], layout="hwk")
    with pytest.raises(lp.InputError, match="all 12 labelled images, expected some for the fit"):
        lp.Refiner.fit(None, logits, labels, guarantee=1.0)


def test_nothing_is_decided_if_certain_pixels_are_wrong() -> None:
    """Abstention from all pixels has no errors, and needs no more images than the level."""
    losses = np.full(len(THRESHOLDS), 0.3)
    guarantee = Guarantee({}, losses, losses, 19, Source("", 2))
    assert guarantee.abstention_threshold(0.05) == np.inf
    with pytest.raises(
        lp.InputError, match=r"abstain is 0\.05, which needs at least 19 images, and the guarantee has 18"
    ):
        replace(guarantee, n_images=18).abstention_threshold(0.05)


def test_malformed_guarantee_in_a_file_is_refused(guaranteed: lp.Refiner) -> None:
    arrays = promise(guaranteed).arrays()
    for wrong in (
        {"misses": np.zeros(3)},
        {"truth area": np.zeros((11, 3))},
        {"std area": np.zeros(3)},
        {"mean area": np.zeros((12, 2))},
    ):
        with pytest.raises(lp.InputError, match="wrong shapes"):
            Guarantee.of_arrays({**arrays, **wrong})
    with pytest.raises(lp.InputError, match="no 'std area'"):
        Guarantee.of_arrays({name: array for name, array in arrays.items() if name != "std area"})


def test_what_cannot_be_guaranteed_is_said(guaranteed: lp.Refiner) -> None:
    logits, labels = scenes(12)
    area = guaranteed.measure(None, logits[0], "area")
    plain = lp.Refiner.load()
    with pytest.raises(lp.InputError, match=r"level is 0.95, which needs at least 19 images, and the guarantee has 12"):
        area.interval(0.95, guarantee=guaranteed)
    with pytest.raises(InputTypeError, match="jointly is 'no', expected True or False"):
        area.interval(guarantee=guaranteed, jointly="no")  # type: ignore[arg-type]
    with pytest.raises(lp.InputError, match=r"abstain is 0.02, which needs at least \d+ images"):
        promise(guaranteed).abstention_threshold(0.02)
    with pytest.raises(lp.InputError, match="needs at least 9 labelled images, and there are 8"):
        plain.guaranteed(None, logits[:8], labels[:8])
    with pytest.raises(lp.InputError, match="8 of 12 labelled images, expected at least 9"):
        lp.Refiner.fit(None, logits, labels, guarantee=0.6)
    with pytest.raises(lp.InputError, match="image 3 occurs twice"):
        plain.guaranteed(None, logits[[0, 1, 2, 0, 4, 5, 6, 7, 8]], labels[[0, 1, 2, 0, 4, 5, 6, 7, 8]])
    with pytest.raises(lp.InputError, match="no quantity 'components', expected one of its own: area, left_half"):
        guaranteed.measure(None, logits[0], "components").interval(guarantee=guaranteed)
    with pytest.raises(lp.InputError, match="has 20 samples, expected at least 50"):
        guaranteed.measure(None, logits[0], "area", lp.LocPMAP(20, start="perturbed")).interval(guarantee=guaranteed)
    with pytest.raises(lp.InputError, match="a Refiner without calibration images"):
        area.interval(guarantee=plain)
    with pytest.raises(TypeError, match="guarantee is a float, expected a Refiner"):
        area.interval(guarantee=0.9)
    with pytest.raises(lp.InputError, match="jointly is True without a guarantee"):
        area.interval(jointly=True)
    with pytest.raises(lp.InputError, match="the result has 2 labels, expected 3 like the guarantee"):
        guaranteed.measure(None, logits[0][..., :2], "area").interval(guarantee=guaranteed)
    with pytest.raises(lp.InputError, match="the result has 2 labels, expected 3 like the guarantee"):
        guaranteed.refine(None, logits[0][..., :2]).label_sets(guarantee=guaranteed)
    with pytest.raises(lp.InputError, match="names area, area, expected different ones"):
        plain.guaranteed(None, logits, labels, ["area", "area"])
    with pytest.raises(TypeError, match="quantities is 'area', expected a sequence"):
        plain.guaranteed(None, logits, labels, "area")
    with pytest.raises(lp.InputError, match="level is 1, expected a number between 0 and 1"):
        plain.refine(None, logits[0]).label_sets(1)
    with pytest.raises(lp.InputError, match="the result of icm has labels only"):
        lp.infer(lp.Potentials.grid(logits[0], 1.0), "icm").label_sets()


def test_drawn_areas_have_a_guarantee_exactly_where_their_measurement_has(guaranteed: lp.Refiner) -> None:
    """The command line and the viewer draw; the result and the areas carry the model, as from refine and measure."""
    logits, _ = scenes(1)
    prepared = guaranteed.prepare(None, logits[0])
    for decoder, holds in (
        (lp.LocPMAP(start="perturbed"), True),
        (lp.LocPMAP(60, start="perturbed"), True),
        (lp.LocPMAP(20, start="perturbed"), False),
        (lp.LocPMAP(start="perturbed", blocks="rows"), False),
        (lp.LocPMAP(start="perturbed", temperature=0.5), False),
        (lp.LocPMAP(start="random"), False),
    ):
        drawn = draw(prepared, decoder)
        assert drawn.result.source == prepared.refine(decoder).source
        measured = prepared.measure("area", decoder)
        low, high, found = interval_of(drawn.areas, LEVEL, guaranteed.guarantee)
        assert found == holds
        expected = measured.interval(LEVEL, guarantee=guaranteed if holds else None)
        np.testing.assert_array_equal((low, high), expected)
    areas = draw(prepared, lp.LocPMAP(start="perturbed")).areas
    assert not interval_of(areas, LEVEL, None)[2]
    assert not interval_of(areas, LEVEL, replace(promise(guaranteed), source=Source("another", 3)))[2]
    assert not interval_of(areas, LEVEL, replace(promise(guaranteed), quantities={}))[2]
