"""Adaptation of the bundled refiner: agreement, confidence, and images that do not predict a network's labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import locpmap as lp
from locpmap.refining.adapting import N_STEPS, Rule, adapted, lattice
from locpmap.refining.examples import gather
from locpmap.refining.fitting import Points, fit_share
from locpmap.refining.model import similarity
from locpmap.refining.weights import STEPS
from locpmap.scale import refine_tiled

RULE = Rule(threshold=0.4, removed=0.1)
P, K = 500, 4


def layers(seed: int, agree: float) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (P, K), and log probabilities that agree with them more or less."""
    rng = np.random.default_rng(seed)
    scores = 3 * rng.normal(size=(P, K))
    return scores, log_softmax(agree * scores + rng.normal(size=(P, K)), axis=-1)


def test_strength_follows_the_agreement_and_the_factor_keeps_the_confidence() -> None:
    scores, guided = layers(0, 0.8)
    p, g = softmax(scores, -1), np.exp(guided)
    chance = (p.mean(0) ** 2).sum()
    agreement = ((p * g).sum(1).mean() - chance) / ((p * p).sum(1).mean() - chance)
    expected = (agreement - RULE.threshold) / (1 - RULE.threshold)
    assert 0.1 < expected < 0.9
    strength, factor = adapted([(scores, guided)], 0.3, 0.7, RULE)
    assert strength[0] == pytest.approx(expected, rel=1e-4)
    joined = factor[0] * ((1 - 0.7 * expected) * scores + 0.7 * expected * guided)
    confidence = p.max(1).mean()
    wanted = confidence + expected * RULE.removed * (1 - confidence)
    assert softmax(joined, -1).max(1).mean() == pytest.approx(wanted, abs=2e-4)
    assert abs(softmax(joined / factor[0], -1).max(1).mean() - wanted) > 0.01  # without the factor it is another one
    assert N_STEPS == 2  # as many as this accuracy needs


def test_each_image_has_its_own_strength_and_rounding() -> None:
    images = [layers(0, 0.8), layers(1, 0.0), layers(2, 2.0)]
    together = adapted(images, 0.3, 0.7, RULE)
    assert together.strength[1] == 0
    assert together.factor[1] == 1
    for n, image in enumerate(images):
        alone = adapted([image], 0.3, 0.7, RULE)
        assert (alone.strength[0], alone.factor[0]) == (together.strength[n], together.factor[n])


def test_equal_predictions_and_no_pixels_keep_the_network() -> None:
    same = np.tile([2.0, 0.0], (50, 1))
    for scores in (same, same[:0]):
        found = adapted([(scores, log_softmax(scores, -1))], 0.3, 0.7, RULE)
        assert (found.strength[0], found.factor[0]) == (0, 1)


@pytest.mark.parametrize("n_labels", [2, 3, 7])
def test_equal_predictions_in_single_precision_keep_the_network(n_labels: int) -> None:
    scores = np.tile(np.linspace(0, 0.7, n_labels, dtype=np.float32), (33 * 33, 1))
    found = adapted([(scores, log_softmax(scores, -1))], 0.3, 0.7, RULE)
    assert (found.strength[0], found.factor[0]) == (0, 1)


def test_tensors_give_the_same_adaptation() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scores, guided = layers(0, 0.8)
    scores[3] = -np.inf
    scores[4, 1] = -np.inf
    expected = adapted([(scores, guided)], 0.3, 0.7, RULE)
    found = adapted([(torch.from_numpy(scores), torch.from_numpy(guided))], 0.3, 0.7, RULE)
    assert np.isfinite(expected.factor).all()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
def test_tensors_give_the_same_similarity(masked: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    image = rng.random((2, 3, 9, 7)).astype(np.float32)
    image[1] = 0.25  # one colour
    hidden = rng.random((2, 9, 7)) < 0.3 if masked else None
    for step in STEPS:
        expected = similarity(image, step, masked=hidden)
        given = None if hidden is None else torch.from_numpy(hidden)
        found = similarity(torch.from_numpy(image), step, masked=given)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
        assert (expected[1] == 1).all()


def test_lattice_covers_large_images_evenly() -> None:
    rows, columns = np.divmod(lattice(1000, 130), 130)
    assert len(rows) == 64 * 64
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (7, 992, 1, 128)
    assert set(np.diff(np.unique(rows))) <= {15, 16}


def noisy_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an image of noise, logits and labels of 32 × 40 pixels."""
    rng = np.random.default_rng(seed)
    truth = (np.add.outer(np.arange(32), np.arange(40)) + seed) // 9 % 2
    return rng.normal(size=(32, 40)), 2 * np.eye(2)[truth] + rng.normal(size=(32, 40, 2)), truth


def test_an_image_without_information_keeps_the_networks_answer() -> None:
    image, logits, _ = noisy_case(0)
    prepared = lp.Refiner.load().prepare(image, logits)
    assert not prepared.potentials.pairwise.coupled
    result = prepared.refine()
    np.testing.assert_allclose(result.probability, softmax(logits, -1), atol=1e-6)
    np.testing.assert_array_equal(result.labels, logits.argmax(-1))


def informative_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an image whose colours are its labels."""
    _, logits, truth = noisy_case(seed)
    return 100.0 * truth, logits, truth


def test_an_image_with_information_changes_the_answer() -> None:
    image, logits, truth = informative_case(0)
    result = lp.refine(image, logits)
    assert (result.labels == truth).mean() > (logits.argmax(-1) == truth).mean() + 0.05


@pytest.mark.parametrize(("case", "helps"), [(noisy_case, False), (informative_case, True)])
def test_a_fit_uses_similar_pixels_only_if_they_help(case: object, helps: bool) -> None:
    images, logits, labels = zip(*map(case, range(8)), strict=True)  # type: ignore[call-overload]
    examples = gather(images, logits, labels, -1, "hwk", "logits", 1.0)
    assert (fit_share([Points.of(example, example.scores) for example in examples]).share > 0) == helps


def test_a_fit_without_labels_on_the_lattice_keeps_the_network() -> None:
    rng = np.random.default_rng(0)
    labels = np.full((3, 130, 130), -1)
    labels[:, 0, :8:4] = [0, 1]
    logits = rng.normal(size=(3, 130, 130, 2))
    examples = gather(list(rng.random((3, 130, 130))), list(logits), list(labels), -1, "hwk", "logits", 1.0)
    assert fit_share([Points.of(example, example.scores) for example in examples]).share == 0


def test_weights_without_similar_pixels_keep_the_network_in_tiles_as_well() -> None:
    image, logits, _ = informative_case(1)
    refiner = lp.Refiner(replace(lp.Refiner.load().weights, own=1.0, guided=0.0, pairwise=0.0))
    decoder = lp.LocPMAP(8, start="perturbed", max_sweeps=32)
    whole = lp.refine(image, logits, refiner, decoder=decoder).probability
    np.testing.assert_allclose(whole, softmax(logits, -1), atol=1e-6)
    tiles = refine_tiled(image, logits, refiner, decoder=decoder, tile=16)
    np.testing.assert_allclose(tiles.probability.compute(), whole, atol=1e-6)


@pytest.mark.parametrize("case", [noisy_case, informative_case])
def test_tiles_are_adapted_to_the_whole_raster(case: object) -> None:
    image, logits, _ = case(3)  # type: ignore[operator]
    mask = np.zeros(image.shape, bool)
    mask[5:20, 30:] = True
    decoder = lp.LocPMAP(8, start="perturbed", max_sweeps=32)
    whole = lp.refine(image, logits, mask=mask, decoder=decoder)
    tiles = refine_tiled(image, logits, mask=mask, decoder=decoder, tile=16)
    np.testing.assert_array_equal(tiles.labels.compute(), whole.labels)
    np.testing.assert_allclose(tiles.probability.compute(), whole.probability, atol=1e-5)
