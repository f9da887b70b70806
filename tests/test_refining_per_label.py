"""Factors and offsets of labels: a fit corrects a biased network, and leaves an unbiased one as it is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import log_softmax, softmax
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputError
from locpmap.refining import per_label
from locpmap.refining.examples import gather
from locpmap.refining.model import AS_LEARNED
from locpmap.refining.per_label import Correction, fit_per_label
from locpmap.refining.scoring import near_boundary
from locpmap.refining.weights import Weights

Array = npt.NDArray[np.float64]


def cases(n: int, bias: float, seed: int = 0) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return logits whose labels follow softmax(logits - bias · (1, 0, -1)), for n images."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.5, size=(n, 24, 30, 3))
    noise = rng.gumbel(size=logits.shape)
    labels = (logits - bias * np.array([1.0, 0.0, -1.0]) + noise).argmax(-1)
    return logits, labels


def correction_of(n: int, bias: float, factors: Any = 1.0, seed: int = 0) -> Correction | None:
    logits, labels = cases(n, bias, seed)
    logits = (logits - logits.max(-1, keepdims=True)) / factors
    return fit_per_label(gather(None, logits, labels, -1, "hwk", "logits", 1.0), 1.0, 0)


def test_the_bias_of_a_network_is_recovered() -> None:
    found = correction_of(40, 0.8, np.array([0.5, 1.0, 2.0]))
    n_pixels = 40 * 500  # of information at least .1 per label and pixel
    assert found is not None
    np.testing.assert_allclose(found.offsets, [-0.8, 0.0, 0.8], atol=4 / np.sqrt(0.1 * n_pixels))
    np.testing.assert_allclose(found.factors, [0.5, 1.0, 2.0], rtol=0.15)
    assert abs(found.offsets.mean()) < 1e-9


def test_an_unbiased_network_is_left_as_it_is() -> None:
    kept = [correction_of(20, 0.0, seed=seed) is None for seed in range(12)]
    assert np.mean(kept) >= 0.8  # a gain of a standard error occurs by chance in at most 16 %


@pytest.mark.parametrize("n_images_with_it", [0, 4])
def test_a_label_in_few_images_keeps_its_scores(n_images_with_it: int) -> None:
    """Images of other scenes may have the label, so its absence here must not be learned."""
    logits, labels = cases(20, 0.8)
    logits = np.concatenate([logits, np.ones((20, 24, 30, 1))], axis=-1)
    labels[:n_images_with_it, :5] = 3
    found = fit_per_label(gather(None, logits, labels, -1, "hwk", "logits", 1.0), 1.0, 0)
    assert found is not None
    assert (found.factors[3], found.offsets[3]) == (1, 0)
    assert found.offsets[0] < -0.3 < 0.3 < found.offsets[2]
    assert found.offsets[:3].mean() == pytest.approx(0)


def test_one_image_is_not_enough() -> None:
    assert correction_of(1, 0.8) is None


def test_a_correction_that_lowers_the_iou_is_not_used() -> None:
    # A rare label whose score is too high by 1: the likelihood asks for fewer of its pixels, and its IoU would fall.
    rng = np.random.default_rng(0)
    labels = (rng.random((20, 24, 30)) < 0.04).astype(int)
    ratio = 2 * (2 * labels - 1) + 2 * rng.normal(size=labels.shape)  # log-likelihood ratio
    logits = np.stack([np.zeros(labels.shape), ratio + np.log(0.04 / 0.96) + 1], -1)
    assert fit_per_label(gather(None, logits, labels, -1, "hwk", "logits", 1.0), 1.0, 0) is None


def test_a_correction_that_removes_small_parts_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stripes of label 1, and far from them a background that the network takes for label 1.
    rng = np.random.default_rng(0)
    labels = np.zeros((20, 24, 120), int)
    labels[:, 3:6, :30], labels[:, 12:15, :30], labels[:, 20:23, :30] = 1, 1, 1
    ratio = np.where(labels == 1, 0.3, -2.0) + 0.5 * rng.normal(size=labels.shape)
    ratio[:, :, 33:] = 0.3 + 0.5 * rng.normal(size=(20, 24, 87))
    logits = np.stack([np.zeros(labels.shape), ratio], -1)
    examples = gather(None, logits, labels, -1, "hwk", "logits", 1.0)
    assert fit_per_label(examples, 1.0, 0) is None
    monkeypatch.setattr(per_label, "near_boundary", lambda labels, _: np.ones(labels.shape, bool))
    assert fit_per_label(examples, 1.0, 0) is not None  # the likelihood and the IoU of all pixels increase


def test_pixels_near_a_boundary() -> None:
    labels = np.random.default_rng(0).integers(0, 2, (3, 9, 11)).repeat(3, axis=1).repeat(4, axis=2)
    for one in labels:
        found = near_boundary(one, 2)
        for (y, x), near in np.ndenumerate(found):
            window = one[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3]
            assert near == (window.min() < window.max())


def test_a_fit_uses_the_offsets_and_stores_them(tmp_path: Path) -> None:
    logits, labels = cases(8, 1.0)
    refiner = lp.Refiner.fit(None, list(logits), list(labels), n_folds=2)
    new, true = cases(8, 1.0, seed=1)
    refined = np.log([refiner.refine(None, one).probability for one in new])
    before, after = (np.take_along_axis(p, true[..., None], -1).mean() for p in (log_softmax(new, -1), refined))
    assert after > before + 0.1
    refiner.save(tmp_path / "refiner.safetensors")
    loaded = lp.Refiner.load(tmp_path / "refiner.safetensors")
    np.testing.assert_array_equal(loaded.weights.offsets, refiner.weights.offsets)
    np.testing.assert_array_equal(loaded.weights.factors, refiner.weights.factors)
    np.testing.assert_array_equal(loaded.refine(None, new[0]).labels, refiner.refine(None, new[0]).labels)


def test_a_refiner_with_offsets_adds_them_and_refuses_another_number_of_labels() -> None:
    refiner = lp.Refiner(Weights([1.0], [2.0], offsets=[[0.5, -0.5]]))
    logits = np.random.default_rng(0).normal(size=(12, 16, 2))
    expected = softmax(2 * logits + [0.5, -0.5], -1)
    np.testing.assert_allclose(refiner.refine(None, logits).probability, expected, atol=1e-6)
    with pytest.raises(InputError, match="logits has 3 labels, expected 2 like those of the fit"):
        refiner.refine(None, np.zeros((12, 16, 3)))
    between = Weights([1.0, 4.0], [2.0, 2.0], offsets=[[0.5, -0.5], [1.5, -1.5]], factors=[[1.0, 2.0], [3.0, 2.0]])
    np.testing.assert_allclose(between.scaled(np.array([[3.0, 5.0]]), 2.0), [[2 * 2.0 * (3 - 5) + 1.0, -1.0]])
    forbidden = np.array([[-np.inf, -np.inf], [2.0, -np.inf]])
    np.testing.assert_array_equal(between.scaled(forbidden, 1.0), [[-np.inf, -np.inf], [0.5, -np.inf]])


@pytest.mark.parametrize("shift", [-4e6, 4e6])
def test_a_constant_added_to_all_scores_changes_nothing(shift: float) -> None:
    weights = Weights([1.0], [1.0], offsets=[[0.5, 0.0, -0.5]], factors=[[1.5, 1.0, 0.5]])
    scores = np.random.default_rng(0).integers(-3, 4, (8, 3)).astype(np.float32)
    np.testing.assert_array_equal(weights.scaled(scores + np.float32(shift), 1.0), weights.scaled(scores, 1.0))


def test_models_with_other_factors_have_another_identity() -> None:
    one, other = (Weights([1.0], [1.0], offsets=[[0.0, 0.0]], factors=[[1.0, factor]]) for factor in (1.0, 2.0))
    assert one.identity(AS_LEARNED) != other.identity(AS_LEARNED)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"offsets": 1.0}, r"offsets has shape \(\), expected \(1, 1\)"),
        ({"offsets": [1.0]}, r"offsets has shape \(1,\), expected \(1, 1\)"),
        ({"offsets": [[np.nan, 1.0]]}, "offsets is .*, expected numbers from -1e.06 to 1e.06"),
        ({"offsets": [[0.0, 0.0]], "factors": [[0.0, 1.0]]}, "factors is .*, expected numbers from 1e-06 to 1e.06"),
        ({"noise": -1.0}, "noise is .*, expected numbers from 0"),
    ],
)
def test_bad_weights_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Weights([1.0], [1.0], **given)


def test_a_gain_below_a_standard_error_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    bias = rng.normal(scale=0.1, size=(8, 1, 1, 2))  # differs between images
    logits = rng.normal(scale=1.5, size=(8, 24, 30, 2))
    labels = (logits + bias + rng.gumbel(size=logits.shape)).argmax(-1)
    given = gather(None, logits, labels, -1, "hwk", "logits", 1.0)
    assert fit_per_label(given, 1.0, 0) is None
    monkeypatch.setattr(per_label, "N_STANDARD_ERRORS", 0.0)
    assert fit_per_label(given, 1.0, 0) is not None


def test_offsets_in_tiles_match_those_of_the_whole() -> None:
    pytest.importorskip("dask")
    from locpmap.scale import refine_tiled

    rng = np.random.default_rng(0)
    image, logits = rng.random((30, 40, 3)), rng.normal(size=(30, 40, 2)).astype(np.float32)
    weights = lp.Refiner.load().weights
    refiner = lp.Refiner(replace(weights, offsets=np.tile([0.7, -0.7], (len(weights.strides), 1))))
    decoder = lp.LocPMAP(9, start="perturbed", max_sweeps=20)
    whole = refiner.refine(image, logits, decoder=decoder, seed=1).probability
    tiled = refine_tiled(image, logits, refiner, decoder=decoder, seed=1, tile=16).probability.compute()
    np.testing.assert_allclose(tiled, whole, atol=2e-3)
    plain = lp.refine(image, logits, decoder=decoder, seed=1).probability
    assert np.abs(plain - whole).max() > 0.1


@pytest.mark.parametrize("offsets", [[[np.nan, 0.0]], [[0.0], [0.0]], [0.0, 1.0], [[[1.0]]]])
def test_invalid_offsets_are_refused(offsets: object) -> None:
    with pytest.raises(InputError, match="offsets"):
        Weights([1.0], [1.0], offsets=offsets)


def test_the_command_line_takes_a_refiner_with_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lp.Refiner(Weights([1.0], [1.0], offsets=[[1.0, 0.0, -1.0]])).save(tmp_path / "mine.safetensors")
    np.save(tmp_path / "image.npy", np.zeros((12, 16, 3), np.uint8))
    np.save(tmp_path / "logits.npy", np.zeros((12, 16, 3), np.float32))
    inputs = (tmp_path / "image.npy", tmp_path / "logits.npy", "--model", tmp_path / "mine.safetensors")
    run = Run(capsys, "refine", *inputs, "-o", tmp_path / "out", "--layout", "hwk", "--keep", "labels")
    assert (run.status, run.err) == (0, "")
