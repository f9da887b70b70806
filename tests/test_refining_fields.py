"""Refiners with error fields: samples, probabilities, small images and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import locpmap as lp
from locpmap.refining.prepared import errors_of
from locpmap.refining.weights import Adjustment, Weights

SIZES = [0.3, 0.4, 1.0, 1.0, 0.6]


def fielded(coupling: float = 3.0) -> lp.Refiner:
    """Return a refiner with error fields and coupling at stride 1."""
    pairwise = np.array([[[0.0, coupling], [0.0, coupling]]])
    return lp.Refiner(Weights([1.0], [1.0], pairwise=pairwise, typical=0.5, shared=0.3, sizes=[SIZES], noise=0.2))


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Return an image of two regions and noisy logits of three labels, 96 x 80 pixels."""
    rng = np.random.default_rng(0)
    truth = (np.arange(80) > 40).astype(int) * np.ones((96, 1), int)
    logits = 2 * np.eye(3)[truth] + ndimage.gaussian_filter(rng.normal(size=(96, 80, 3)), (4, 4, 0)) * 8
    return (50 + 120 * truth + rng.integers(0, 20, truth.shape)).astype(np.uint8), logits.astype(np.float32)


def test_adjustments_change_the_errors() -> None:
    weights = replace(fielded().weights, votes=0.6)
    for strength, votes in ((0.5, 0.3), (1.0, 0.6), (1.5, 0.9), (2.0, 1.0)):
        found = errors_of(weights, Adjustment(strength, temperature=2.0), 1.0)
        assert found.votes == pytest.approx(votes)
        assert found.sizes == pytest.approx([size / 2 for size in SIZES])
        assert (found.shared, found.noise) == pytest.approx((0.15, 0.2))


def test_strength_0_leaves_the_softmax_of_the_scaled_scores() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 24, 3)).astype(np.float32)
    refiner = lp.Refiner.load().adjusted(strength=0)
    expected = np.exp(np.float32(refiner.weights.scales[0]) * logits)
    expected /= expected.sum(axis=-1, keepdims=True)
    found = lp.refine(np.zeros((20, 24, 3)), logits, refiner).probability
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_probability_is_the_mean_of_samples_and_softmax() -> None:
    image, logits = scene()
    refiner = fielded()
    result = refiner(image, logits, decoder=lp.LocPMAP(30, start="perturbed", keep_samples=True), seed=3)
    votes = (result.samples[..., None] == np.arange(3)).mean(axis=0)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(result.probability, (votes + softmax) / 2, atol=1e-6)
    assert refiner(image, logits).n_samples == 50


def test_samples_are_kept_on_request() -> None:
    image, logits = scene()
    kept = lp.refine(image, logits, fielded(), keep_samples=True)
    decoder = lp.LocPMAP(start="perturbed", keep_samples=True)
    np.testing.assert_array_equal(kept.samples, lp.refine(image, logits, fielded(), decoder=decoder).samples)
    assert kept.samples.shape == (50, *logits.shape[:2])
    plain = lp.refine(image, logits, fielded())
    assert plain.samples is None
    assert plain.probability.tobytes() == kept.probability.tobytes()
    for name in ("mean_field", "icm_iter"):
        with pytest.raises(lp.InputError, match=f"decoder is {name}, which keeps no samples"):
            lp.refine(image, logits, decoder=name, keep_samples=True)
    for wrong in (3, None, np.array([1, 0])):
        with pytest.raises(TypeError, match=r"keep_samples is .*, expected True or False"):
            lp.refine(image, logits, keep_samples=wrong)  # type: ignore[arg-type]


def components(*maps: np.ndarray) -> float:
    """Return the mean number of connected components of label maps with three labels."""
    return float(np.mean([sum(ndimage.label(labels == k)[1] for k in range(3)) for labels in maps]))


@pytest.mark.parametrize("batched", [False, True])
def test_labels_are_a_local_maximum_near_the_best_scores(batched: bool) -> None:
    image, logits = scene()
    logits += np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    mask = np.zeros(image.shape, bool)
    mask[3:5, 7:20] = True
    given = (image[None], logits[None]) if batched else (image, logits)
    result = fielded(0.5)(*given, mask=mask)
    potentials = fielded(0.5).prepare(*given, mask=mask).potentials
    start = np.where(mask, 0, logits.argmax(-1))  # an array, for which climbs use lists of neighbours
    expected = lp.infer(potentials, lp.ICM(start=start[None] if batched else start), backend="reference").labels
    np.testing.assert_array_equal(result.labels, expected)
    found, most_probable = np.squeeze(result.labels), np.squeeze(result.probability.argmax(-1))
    assert components(found) < min(components(most_probable), components(logits.argmax(-1)) / 2)


def test_blocks_of_the_decoder_apply_to_the_labels() -> None:
    image, logits = scene()
    rows = lp.LocPMAP(8, start="perturbed", blocks="rows")
    prepared = fielded(0.5).prepare(image, logits)
    expected = lp.infer(prepared.potentials, lp.LocPMAP(1, start="perturbed", blocks="rows", temperature=0)).labels
    np.testing.assert_array_equal(prepared.refine(rows).labels, expected)
    sites = prepared.refine(lp.LocPMAP(8, start="perturbed")).labels
    assert (sites != expected).any()
    own = lp.LocPMAP(8, start="perturbed", fields=lp.ErrorFields([3.0], shared=3.0))  # not in the labels
    np.testing.assert_array_equal(prepared.refine(own).labels, sites)


def test_a_name_is_the_decoder_with_its_defaults() -> None:
    image, logits = scene()
    by_name, configured = (lp.refine(image, logits, fielded(), decoder=how) for how in ("locpmap", lp.LocPMAP()))
    np.testing.assert_array_equal(by_name.probability, configured.probability)
    np.testing.assert_array_equal(by_name.labels, configured.labels)


def test_samples_are_whole_maps() -> None:
    """Compare the number of components with that of independent pixels: fields and coupling leave no specks."""
    image, logits = scene()
    decoder = lp.LocPMAP(10, start="perturbed", keep_samples=True)
    whole = fielded()(image, logits, decoder=decoder).samples
    alone = lp.Refiner(Weights([1.0], [1.0]))(image, logits, decoder=decoder).samples
    assert components(*whole) < components(*alone) / 10


def test_measure_uses_the_fields() -> None:
    image, logits = scene()
    prepared = fielded().prepare(image, logits)
    decoder = lp.LocPMAP(20, start="perturbed", temperature=0.2, fields=lp.ErrorFields(SIZES, shared=0.3))
    expected = lp.measure(prepared.potentials, "area", decoder, seed=5)
    shown: list[tuple[int, int]] = []
    options: dict[str, Any] = {"seed": 5, "progress": lambda *step: shown.append(step)}
    found = fielded().measure(image, logits, "area", lp.LocPMAP(20, start="perturbed"), **options)
    assert shown == [(done, 20) for done in range(1, 21)]
    np.testing.assert_array_equal(found.values, expected.values)


def test_scales_larger_than_the_image_become_part_of_the_shared_error() -> None:
    _, logits = scene()
    fields = fielded().prepare(None, logits[:28, :28]).fields
    np.testing.assert_allclose(fields.sizes, SIZES[:3])
    assert float(fields.shared) == pytest.approx(np.sqrt(0.3**2 + SIZES[3] ** 2 + SIZES[4] ** 2))


def test_temperature_divides_the_fields() -> None:
    _, logits = scene()
    fields = fielded().adjusted(temperature=2.0).prepare(None, logits).fields
    np.testing.assert_allclose(fields.sizes, np.array(SIZES) / 2)


def test_masked_pixels_have_no_probability() -> None:
    image, logits = scene()
    mask = np.zeros(image.shape, bool)
    mask[:10] = True
    result = fielded()(image, logits, mask=mask)
    assert (result.labels[:10] == -1).all()
    assert (result.probability[:10] == 0).all()
    assert (result.labels[10:] >= 0).all()
    np.testing.assert_allclose(result.probability[10:].sum(-1), 1, atol=1e-5)


def test_tensors_give_the_same_result() -> None:
    torch = pytest.importorskip("torch")
    image, logits = scene()
    expected = fielded()(image, logits)
    found = fielded()(torch.tensor(image)[None], torch.tensor(logits).permute(2, 0, 1))
    np.testing.assert_array_equal(found.labels.numpy(), expected.labels)


def test_fields_are_saved_and_older_files_have_none(tmp_path: Path) -> None:
    fielded().save(tmp_path / "fields.safetensors")
    again = lp.Refiner.load(tmp_path / "fields.safetensors")
    np.testing.assert_array_equal(again.weights.sizes, [SIZES])
    assert "with error fields" in repr(again)
    older = lp.Refiner.load(Path(__file__).parent / "fixtures" / "0.1.0" / "refiner.safetensors")
    assert "without error fields" in repr(older)
    assert not older.weights.sizes.any()


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(lp.InputError, match=r"sizes is .*, expected numbers from 0"):
        replace(fielded().weights, sizes=-1.0)


def test_smoothing_removes_specks_from_labels_and_samples() -> None:
    image, logits = scene()
    logits += np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    decoder = lp.LocPMAP(5, start="perturbed", keep_samples=True)
    plain, smooth = (fielded(0.1).adjusted(smoothing=value)(image, logits, decoder=decoder) for value in (0, 1))
    assert components(smooth.labels) < components(plain.labels) / 2
    assert components(*smooth.samples) < components(*plain.samples) / 2


def test_an_image_with_forbidden_labels_does_not_change_the_rest_of_its_batch() -> None:
    """Presence is off only where scores are -inf."""
    rng = np.random.default_rng(0)
    images, logits = rng.integers(0, 255, (3, 13, 17, 3), dtype=np.uint8), rng.normal(size=(3, 13, 17, 4))
    logits[1, ..., 0] = -np.inf
    refiner, decoder = lp.Refiner.load(), lp.LocPMAP(8, start="perturbed")
    presence = refiner.prepare(images, logits).fields.presence
    assert (presence[1] == 1).all()
    assert (presence[[0, 2]] < 1).any()
    together = refiner(images, logits, decoder=decoder, seed=1).probability
    np.testing.assert_array_equal(refiner(images[0], logits[0], decoder=decoder, seed=1).probability, together[0])
